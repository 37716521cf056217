"""What `make` says while it builds: ninja is silent, for minutes the first time."""
import pathlib
import subprocess

ROOT = pathlib.Path(__file__).parents[3]


def build(directory):
    done = subprocess.run([ROOT / "tools/build", directory], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done
    return done.stderr


def test_a_build_is_announced_if_there_is_anything_to_build(tmp_path):
    (tmp_path / "build.ninja").write_text("rule copy\n  command = cp $in $out\nbuild copy: copy original\n")
    (tmp_path / "original").touch()
    said = f"building into {tmp_path}/, some minutes the first time\n"
    assert build(tmp_path) == said and (tmp_path / "copy").exists()
    assert build(tmp_path) == ""
    (tmp_path / "copy").unlink()
    assert build(tmp_path) == said


def test_make_builds_by_it():
    assert "\nninja = tools/build\n" in (ROOT / "Makefile").read_text()
