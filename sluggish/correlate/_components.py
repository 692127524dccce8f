"""Circles of places that wait for each other."""

from collections.abc import Iterator


def components(edges: list[set[int]]) -> list[list[int]]:
    """Strongly connected components, without recursion (Tarjan); an edge below 0 leads out."""
    index: dict[int, int] = {}
    low: dict[int, int] = {}
    on_stack: set[int] = set()
    stack: list[int] = []
    found: list[list[int]] = []
    for start in range(len(edges)):
        if start in index:
            continue
        work: list[tuple[int, Iterator[int]]] = [(start, _next(edges, start))]
        index[start] = low[start] = len(index)
        stack.append(start)
        on_stack.add(start)
        while work:
            vertex, children = work[-1]
            child = next(children, None)
            if child is None:
                work.pop()
                if work:
                    parent = work[-1][0]
                    low[parent] = min(low[parent], low[vertex])
                if low[vertex] == index[vertex]:
                    found.append(_pop(stack, on_stack, vertex))
            elif child not in index:
                index[child] = low[child] = len(index)
                stack.append(child)
                on_stack.add(child)
                work.append((child, _next(edges, child)))
            elif child in on_stack:
                low[vertex] = min(low[vertex], index[child])
    return found


def _next(edges: list[set[int]], vertex: int) -> Iterator[int]:
    return iter(sorted(v for v in edges[vertex] if v >= 0))


def _pop(stack: list[int], on_stack: set[int], vertex: int) -> list[int]:
    component: list[int] = []
    while True:
        top = stack.pop()
        on_stack.discard(top)
        component.append(top)
        if top == vertex:
            return sorted(component)
