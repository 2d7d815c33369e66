from pathlib import Path

import pytest
import synthetic

from crosslane_lab.runs.folder import RunFolder


@pytest.fixture(scope="session")
def left(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """A drive out of coverage: three strategies, two seeds. Tests must not change it."""
    return RunFolder.open(synthetic.write(tmp_path_factory.mktemp("leave")))


@pytest.fixture(scope="session")
def passed_by(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """A drive out of coverage and back. Tests must not change it."""
    return RunFolder.open(synthetic.write(tmp_path_factory.mktemp("pass"), synthetic.PASS_BY))


@pytest.fixture
def drive(tmp_path: Path) -> Path:
    """The folder of a small drive with one seed that a test may change."""
    return synthetic.write(tmp_path / "run", synthetic.Drive(seeds=(1,)))
