"""An array on disk has its room before it is written to."""

import errno
import os
from pathlib import Path

import numpy as np
import pytest

from loriini.data.jobs.artifact import new_array

reserves = pytest.mark.skipif(not hasattr(os, "posix_fallocate"), reason="this system reserves no room")


@reserves
def test_all_space_is_reserved(tmp_path: Path) -> None:
    new_array(tmp_path / "a.npy", np.float32, (1000, 1000))
    stat = (tmp_path / "a.npy").stat()
    assert stat.st_size > 4_000_000
    assert stat.st_blocks * 512 >= stat.st_size


@reserves
def test_a_full_disk_is_an_os_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*arguments: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(OSError, match="No space left"):
        new_array(tmp_path / "a.npy", np.float32, (10,))
