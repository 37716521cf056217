"""Commands that see the machine as a container may: with another boot id, or with a clock that was moved."""
import subprocess
import uuid

import pytest

BOOT_ID = "/proc/sys/kernel/random/boot_id"


def works(prefix):
    try:
        return subprocess.run([*prefix, "true"], capture_output=True, timeout=30).returncode == 0
    except FileNotFoundError:
        return False


def moved_clock(seconds):
    """In a time namespace: CLOCK_BOOTTIME reads so many seconds later."""
    for root in ([], ["--map-root-user"]):
        prefix = ["unshare", *root, "--time", "--fork", "--boottime", str(seconds)]
        if works(prefix):
            return prefix
    pytest.skip("no time namespaces to be had here")


def other_boot_id(directory):
    """The same kernel under another boot id, as some container managers have it."""
    made = directory / "boot_id"
    made.write_text(f"{uuid.uuid4()}\n")
    prefix = ["unshare", "--mount", "sh", "-c", f'mount --bind "{made}" {BOOT_ID} && exec "$@"', "sh"]
    if not works(prefix):
        pytest.skip("no mount namespaces to be had here")
    return prefix
