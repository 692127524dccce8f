"""What an alert of the watch comes to: the look, and the words for those who are told."""

from __future__ import annotations

import json
import sys
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from sluggish.causes import EXIT_CODES, EXIT_NOTHING, EXIT_USAGE
from sluggish.config import Config
from sluggish.evidence.source import EvidenceError
from sluggish.probes import PROBES
from sluggish.text import safe
from sluggish.watch.state import Event

if TYPE_CHECKING:
    from sluggish.cli.live import Wanted
    from sluggish.verdict.model import Diagnosis
    from sluggish.watch.followed import Followed

AGAIN_S = 3.0


def look(
    wanted: Wanted, config: Config, *, as_json: bool, cloud: bool
) -> tuple[int, Diagnosis | None, str]:
    """As `diagnose --job`: exit code, diagnosis, where its bundle lies."""
    from sluggish.cli.collect import collected
    from sluggish.cli.diagnose import report
    from sluggish.cli.history import remember as keep
    from sluggish.cli.reading import mapper
    from sluggish.diagnose import diagnose
    from sluggish.evidence.open import load

    for again in (True, False):  # a disk that was busy a moment ago may take it now
        try:
            kept = collected(wanted, config)
            break
        except EvidenceError as problem:
            print(f"sluggish: {safe(str(problem), 300)}", file=sys.stderr)
            if not again:
                return EXIT_USAGE, None, ""
            time.sleep(AGAIN_S)
    else:
        raise AssertionError("unreachable")
    if kept is None:
        return EXIT_NOTHING, None, ""
    bundle = load([str(kept.path)], PROBES)
    if as_json:
        given_back = cloud or config.cloud
        diagnosis = diagnose(bundle, mapper(), cloud=given_back, reason=config.reason_template)
        told: dict[str, Any] = {"kind": "diagnosis", "job": wanted.job.job}
        from sluggish.report.json import render

        print(json.dumps({**told, "diagnosis": json.loads(render(diagnosis))}), flush=True)
        code = EXIT_CODES[diagnosis.verdict.cause]
    else:
        found: list[Diagnosis] = []
        code = report(bundle, as_json=False, explain=False, cloud=cloud, config=config,
                      then=found.append)  # fmt: skip
        diagnosis = found[0]
    keep(diagnosis, config, wanted.job.job, kept.silent)
    if kept.taken.stopped:
        raise KeyboardInterrupt
    return code, diagnosis, str(kept.path)


def remember(event: Event, followed: Followed, config: Config) -> None:
    """Writes an alert into the ledger, whatever the look will say."""
    from sluggish.cli.history import remember_alert
    from sluggish.history.model import Alert
    from sluggish.hostlist import fold

    began = followed.state.started_at
    alert = Alert(
        job=event.job,
        started=datetime.fromtimestamp(began, UTC) if began else None,
        at=datetime.fromtimestamp(event.at, UTC),
        nodes=fold(followed.nodes),
        says=event.says,
    )
    remember_alert(alert, config)


def line_of(event: Event, as_json: bool) -> str:
    """One line an event, as JSON or for a person."""
    at = datetime.fromtimestamp(event.at, UTC)
    if as_json:
        told = {"kind": event.kind, "at": f"{at:%Y-%m-%dT%H:%M:%SZ}", "job": event.job or None,
                "node": event.node, "says": event.says, "signs": list(event.signs)}  # fmt: skip
        return json.dumps(told)
    where = " ".join(part for part in (event.job and f"job {event.job}", event.node) if part)
    words = f"{where}: {event.kind}: {event.says}" if where else f"{event.kind}: {event.says}"
    return f"{at:%H:%M:%SZ}  {safe(words, 300)}"


def document_of(event: Event, diagnosis: Diagnosis | None, path: str, code: int) -> dict[str, Any]:
    """What exec and webhook get: the event and the verdict in short; the bundle holds the rest."""
    verdict: dict[str, Any] = {"cause": None, "subtype": None, "confidence": None, "culprits": []}
    if diagnosis is not None:
        from sluggish.report.json import render

        whole = json.loads(render(diagnosis))["verdict"]
        verdict = {key: whole.get(key) for key in verdict}
    at = datetime.fromtimestamp(event.at, UTC)
    since = datetime.fromtimestamp(event.since, UTC) if event.since else None
    return {
        "schema": 1, "kind": event.kind, "job": event.job, "at": f"{at:%Y-%m-%dT%H:%M:%SZ}",
        "since": f"{since:%Y-%m-%dT%H:%M:%SZ}" if since else None, "says": safe(event.says, 400),
        "signs": list(event.signs), "verdict": verdict, "exit_code": code, "bundle": path or None,
    }  # fmt: skip
