"""Which Java Spark gets."""

import subprocess

import pytest

from tallymark.pipeline.spark import java


def fake_java(folder, version: str):
    home = folder / f"java-{version}"
    (home / "bin").mkdir(parents=True)
    (home / "bin" / "java").write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    (home / "bin" / "java").chmod(0o755)
    return home


def test_java_home_is_used_when_it_is_new_enough(tmp_path):
    home = fake_java(tmp_path, "17.0.15")
    assert java.java_home(tmp_path, {"JAVA_HOME": str(home), "PATH": ""}) == home


def test_an_old_java_home_gives_way_to_the_one_on_the_path(tmp_path):
    old, new = fake_java(tmp_path, "11.0.2"), fake_java(tmp_path, "21.0.1")
    assert java.java_home(tmp_path, {"JAVA_HOME": str(old), "PATH": str(new / "bin")}) == new


@pytest.mark.parametrize("environment", [{"PATH": ""}, {"PATH": "", "JAVA_HOME": "/nowhere"}])
def test_without_a_java_the_wheel_is_used_and_really_runs(tmp_path, environment):
    home = java.java_home(tmp_path, environment)
    assert home == tmp_path / "java"
    # The module that the wheel's runtime lacks must not reach it.
    said = subprocess.run(
        [home / "bin" / "java", "--add-modules=jdk.incubator.vector", "-version"], capture_output=True, text=True
    )
    assert said.returncode == 0, said.stderr
    assert (java.major_version(home / "bin" / "java") or 0) >= java.OLDEST


def test_what_does_not_run_has_no_version(tmp_path):
    assert java.major_version(tmp_path / "missing") is None
