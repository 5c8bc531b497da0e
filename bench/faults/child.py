"""Another process that appends: ``python -m bench.faults.child FRAMEWORK SUBJECT ADDRESS SESSION``.

A line of JSON on its standard input is a list of items to append at once; it answers ``done``, or the
name of an error, behind each.
"""

import asyncio
import importlib
import json
import sys

from bench.faults.stores import Item, Subject


def find_subject(framework: str, name: str) -> Subject:
    """A subject of a framework's module, by its name."""
    subjects: list[Subject] = importlib.import_module(f"bench.faults.frameworks.{framework}").SUBJECTS
    return next(each for each in subjects if each.name == name)


async def main(framework: str, name: str, address: str, session: str) -> None:
    """Append until standard input ends."""
    store = await find_subject(framework, name).open(address, session)
    while line := await asyncio.to_thread(sys.stdin.readline):
        told = "done"
        try:
            await store.append([Item(*each) for each in json.loads(line)])
        except Exception as error:  # noqa: BLE001 (each store has errors of its own)
            told = type(error).__name__
        sys.stdout.write(f"{told}\n")
        sys.stdout.flush()
    await store.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
