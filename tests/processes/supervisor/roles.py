"""Small stand-ins for roles, as programs: they announce themselves like real ones and then misbehave as told."""

import sys
from pathlib import Path

from tallymark.supervisor.child import ChildSpec

PROGRAM = """
import json, os, signal, sys, threading, time
name, folder, behaviour = sys.argv[1:4]

def note(word):
    fd = os.open(f"{folder}/story", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(fd, f"{word} {name}\\n".encode())

def announce():
    draft = f"{folder}/run/.{name}"
    with open(draft, "w") as file:
        json.dump({"pid": os.getpid(), "address": None, "ready_ms": 0}, file)
    os.rename(draft, f"{folder}/run/{name}.json")

def end(*_):
    note("stopped")
    os._exit(0)

def watch_parent():
    os.read(0, 1)
    note("orphaned")
    os._exit(0)

signal.signal(signal.SIGTERM, signal.SIG_IGN if behaviour == "deaf" else end)
if behaviour != "blind":
    threading.Thread(target=watch_parent, daemon=True).start()
note("started")
if behaviour == "crashing":
    print("the disk is on fire", flush=True)
    sys.exit(3)
if behaviour == "misused":
    print("log.partitions = 0 must be 1 to 1024", flush=True)
    sys.exit(2)
if behaviour == "with_jvm":
    import subprocess
    jvm = subprocess.Popen(["sleep", "1000"])
    with open(f"{folder}/jvm", "w") as file:
        file.write(str(jvm.pid))
if behaviour == "chatty":
    import subprocess
    chat = "import time\\nwhile True: print('%s ' * 50, flush=True); time.sleep(0.002)"
    subprocess.Popen([sys.executable, "-S", "-c", chat % "jvm"])
    threading.Thread(target=exec, args=(chat % "role", {}), daemon=True).start()
if behaviour != "slow":
    announce()
while True:
    time.sleep(60)
"""


def role(name: str, folder: Path, behaviour: str = "good", *, stop_s: float = 5.0) -> ChildSpec:
    command = (sys.executable, "-S", "-c", PROGRAM, name, str(folder), behaviour)
    return ChildSpec(name, command, stop_s=stop_s)
