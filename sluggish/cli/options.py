"""Options that several commands share."""

from typing import Annotated

import typer

Job = Annotated[str, typer.Option("--job", metavar="ID", help="Slurm's job id, also 123_4, 123+0.")]
Way = Annotated[
    str | None,
    typer.Option("--transport", help="auto, ssh, openssh, srun or local.", metavar="WAY"),
]
Window = Annotated[
    float | None,
    typer.Option("--window", min=0, max=600, metavar="S", help="Seconds between samples."),
]
Cloud = Annotated[
    bool,
    typer.Option("--cloud", help="The nodes are a provider's instances: given back, not reset."),
]
Sudo = Annotated[bool, typer.Option("--sudo", help="Read the kernel log through sudo -n.")]
Poke = Annotated[
    bool, typer.Option("--poke", help="Also what touches the job: recorder pipes, py-spy, RAS.")
]
