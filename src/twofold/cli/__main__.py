"""``python -m twofold.cli``, for launchers that start modules."""

from twofold.cli import main

main(prog_name="twofold")
