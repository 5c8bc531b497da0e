#!/usr/bin/env python3
"""Stands for the program that the Claude Agent SDK starts: needs no key, and answers with what it was given.

Of that program's protocol it does what a conversation needs: reads the transcript that it is to go on with,
writes its own file, and mirrors each entry to the SDK, which hands them to the session store.
"""

import json
import os
import re
import sys
import uuid
from pathlib import Path
from typing import Any


def main() -> None:
    """Answer each message of the user, until there are no more."""
    if "--version" in sys.argv or "-v" in sys.argv:
        sys.stdout.write("2.1.0 (Claude Code)\n")
        return
    name = find_option("--resume") or find_option("--session-id") or str(uuid.uuid4())
    transcript = find_transcript(name)
    for line in sys.stdin:
        message = json.loads(line)
        if message["type"] == "control_request":
            answer = {"subtype": "success", "request_id": message["request_id"], "response": {"commands": []}}
            send(type="control_response", response=answer)
        elif message["type"] == "user":
            answer_user(transcript, name, message)


def find_option(name: str) -> str | None:
    """What an option of the command line says."""
    for at, each in enumerate(sys.argv):
        if each == name:
            return sys.argv[at + 1]
        if each.startswith(f"{name}="):
            return each.partition("=")[2]
    return None


def find_transcript(name: str) -> Path:
    """The file of a session: one that is there, or a new one of this folder's."""
    home = Path(os.environ.get("CLAUDE_CONFIG_DIR") or Path.home() / ".claude") / "projects"
    found = next(home.glob(f"*/{name}.jsonl"), None)
    if found is None:
        found = home / re.sub(r"[^A-Za-z0-9]", "-", str(Path.cwd())) / f"{name}.jsonl"
        found.parent.mkdir(parents=True, exist_ok=True)
    return found


def answer_user(transcript: Path, name: str, question: Any) -> None:
    """Say how many entries there were before, and store both sides."""
    before = transcript.read_text().splitlines() if transcript.exists() else []
    answer = f"Noted. I was given {len(before)} entries before this one."
    store(transcript, name, "user", question["message"]["content"], question.get("uuid"))
    store(transcript, name, "assistant", [{"type": "text", "text": answer}])
    message = {"role": "assistant", "model": "scripted", "content": [{"type": "text", "text": answer}]}
    send(type="assistant", message=message, parent_tool_use_id=None, session_id=name)
    times = {"duration_ms": 1, "duration_api_ms": 1, "num_turns": 1, "is_error": False}
    send(type="result", subtype="success", session_id=name, result=answer, **times)


def store(transcript: Path, name: str, role: str, content: Any, uuid_: str | None = None) -> None:
    """An entry in the file, and to the SDK."""
    entry = {
        "type": role,
        "uuid": uuid_ or str(uuid.uuid4()),
        "sessionId": name,
        "message": {"role": role, "content": content},
    }
    with transcript.open("a") as file:
        file.write(json.dumps(entry) + "\n")
    send(type="transcript_mirror", filePath=str(transcript), entries=[entry])


def send(**fields: Any) -> None:
    """One line to the SDK."""
    sys.stdout.write(json.dumps(fields) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
