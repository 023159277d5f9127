"""FastVideo's Parquet as files: the columns of its schema, float32 bytes, whole files only, damage told and passed over."""

import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from trainer.data.parquet.read import Findings, file_samples, parquet_files
from trainer.data.parquet.sample import Sample
from trainer.data.parquet.schema import arrow_schema, columns
from trainer.data.parquet.write import MARKER, PLACE, write_samples
from trainer.errors import Interrupted, UserError

# As the facts on FastVideo (2f3d407, fastvideo/dataset/dataloader/schema.py) give them.
T2V = (
    "id string | vae_latent_bytes binary | vae_latent_shape list<int64> | vae_latent_dtype string | text_embedding_bytes binary | "
    "text_embedding_shape list<int64> | text_embedding_dtype string | file_name string | caption string | "
    "media_type string ('image'|'video') | width int64 | height int64 | num_frames int64 | duration_sec float64 | fps float64."
)
I2V = "after the text embedding, clip_feature_{bytes,shape,dtype}, first_frame_latent_{bytes,shape,dtype}, pil_image_{bytes,shape,dtype}"
TEXT_ONLY = "text_only (id, text_embedding_{bytes,shape,dtype}, caption)"
PART_TYPES = {"bytes": "binary", "shape": "list<int64>", "dtype": "string"}


def demanded(kind):
    """(name, type) of each column, parsed from the texts above."""
    text = re.sub(r"\([^)]*\)", "", T2V).rstrip(".")
    t2v = [tuple(column.split()) for column in text.split(" | ")]
    if kind == "t2v":
        return t2v
    if kind == "i2v":
        image = [(f"{name}_{part}", PART_TYPES[part]) for name in re.findall(r"(\w+)_\{", I2V) for part in ("bytes", "shape", "dtype")]
        after = [name for name, _ in t2v].index("text_embedding_dtype") + 1
        return t2v[:after] + image + t2v[after:]
    listed = re.sub(r"text_embedding_\{([^}]*)\}", lambda m: ", ".join(f"text_embedding_{p}" for p in m[1].split(",")), TEXT_ONLY)
    names = listed[listed.index("(") + 1 : -1].split(", ")
    return [(name, dict(t2v)[name]) for name in names]


def type_name(arrow_type):
    return re.sub(r"list<\w+: ", "list<", str(arrow_type)).replace("double", "float64")


def sample(number, dtype=np.float32, **parts):
    source = np.random.default_rng(number)
    return Sample(
        f"clip{number}.mp4", f"a caption, ünïcode {number}", source.standard_normal((3 + number % 2, 5)).astype(dtype),
        source.standard_normal((2, 3, 4, 6)).astype(dtype), file_name=f"clip{number}.mp4",
        width=48, height=32, duration_sec=0.5625, fps=16.0, **parts,
    )  # fmt: skip


def rows_of(*samples, kind="t2v"):
    """Rows as a stranger would write them, to be spoilt."""
    from trainer.data.parquet.sample import to_row

    return [to_row(one, kind) for one in samples]


def write_rows(path, rows, schema=None, **settings):
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows, schema=schema or arrow_schema("t2v")), path, compression="zstd", **settings)
    return path


def contents(folder):
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*.parquet")}


def read_all(folder):
    findings = Findings()
    return [one for path in parquet_files(folder) for _, one in file_samples(path, findings)], findings


@pytest.mark.parametrize("kind", ["t2v", "i2v", "text_only"])
def test_columns_are_fastvideos_one_by_one(kind, tmp_path):
    wanted = demanded(kind)
    assert len(wanted) == {"t2v": 15, "i2v": 24, "text_only": 5}[kind]
    (file,) = write_samples([sample(0)], kind, tmp_path / "out", "s")
    written = [(field.name, type_name(field.type)) for field in pq.read_schema(file)]
    for place, column in enumerate(wanted):
        assert written[place] == column
    assert len(written) == len(wanted)
    assert [(name, type_name(kind_type)) for name, kind_type in columns(kind)] == wanted


def test_65_samples_are_two_files_and_come_back_bit_for_bit(tmp_path):
    samples, done = [sample(number) for number in range(65)], []
    files = write_samples(samples, "t2v", tmp_path / "out", "s", done.append)
    assert [file.relative_to(tmp_path / "out").as_posix() for file in files] == [f"{PLACE}/data_chunk_{n}.parquet" for n in (0, 1)]
    assert PLACE == "training_dataset/worker_0/worker_0"
    assert [pq.read_metadata(file).num_rows for file in files] == [64, 1]
    assert pq.read_metadata(files[0]).row_group(0).column(1).compression == "ZSTD"
    assert done == sorted(done) and done[-1] == 65
    back, findings = read_all(tmp_path / "out")
    assert len(back) == 65 and not findings.skipped and not findings.dtypes
    for first, second in zip(samples, back, strict=True):
        for name in ("vae_latent", "text_embedding"):
            wrote, read = getattr(first, name), getattr(second, name)
            assert read.dtype == np.float32 and read.shape == wrote.shape and read.tobytes() == wrote.tobytes()
        for name in ("id", "caption", "file_name", "media_type", "width", "height", "duration_sec", "fps", "num_frames"):
            assert getattr(first, name) == getattr(second, name)


def test_rows_decode_the_way_fastvideo_decodes_them(tmp_path):
    """It takes a row group to Python, reads the bytes as float32 whatever dtype says, and newer versions demand that word."""
    wrote = sample(1)
    (file,) = write_samples([sample(0), wrote], "t2v", tmp_path / "out", "s")
    table = pq.ParquetFile(file)
    assert [table.metadata.row_group(group).num_rows for group in range(table.num_row_groups)] == [1, 1]
    row = {name: values[0] for name, values in table.read_row_group(1).to_pydict().items()}
    assert row["vae_latent_dtype"] == row["text_embedding_dtype"] == "float32"
    assert np.array_equal(np.frombuffer(row["vae_latent_bytes"], np.float32).reshape(row["vae_latent_shape"]), wrote.vae_latent)
    assert row["num_frames"] == row["vae_latent_shape"][1] == 3


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float64"])
def test_other_precisions_are_stored_as_float32(dtype, tmp_path):
    import torch

    dtype = getattr(torch, dtype)
    latent = torch.randn(2, 3, 4, 6, generator=torch.Generator().manual_seed(1)).to(dtype)
    text = torch.randn(5, 7, generator=torch.Generator().manual_seed(2)).to(dtype).requires_grad_()
    write_samples([Sample("a", "", text, latent.transpose(2, 3))], "t2v", tmp_path / "out", "s")
    back = read_all(tmp_path / "out")[0][0]
    assert torch.equal(torch.from_numpy(back.vae_latent), latent.transpose(2, 3).float())
    assert torch.equal(torch.from_numpy(back.text_embedding), text.detach().float())


def test_half_precision_numpy_is_stored_as_float32(tmp_path):
    half = sample(3, np.float16)
    write_samples([half], "t2v", tmp_path / "out", "s")
    assert np.array_equal(read_all(tmp_path / "out")[0][0].vae_latent, half.vae_latent.astype(np.float32))


def test_image_parts_are_kept_and_missing_ones_are_empty_bytes(tmp_path):
    whole = sample(
        0, clip_feature=np.ones((1, 3, 4), np.float32), first_frame_latent=np.zeros((2, 1, 4, 6)), pil_image=np.full((2, 2, 3), 7, np.uint8)
    )
    (file,) = write_samples([whole, sample(1)], "i2v", tmp_path / "out", "s")
    raw = pq.read_table(file).to_pylist()
    assert (raw[1]["clip_feature_bytes"], raw[1]["clip_feature_shape"], raw[1]["clip_feature_dtype"]) == (b"", [], "")
    assert raw[0]["pil_image_dtype"] == "float32" and len(raw[0]["pil_image_bytes"]) == 48
    first, second = read_all(tmp_path / "out")[0]
    assert first.clip_feature.shape == (1, 3, 4) and np.array_equal(first.pil_image, np.full((2, 2, 3), 7))
    assert second.clip_feature is None and second.first_frame_latent is None and second.pil_image is None


def test_text_only_samples_have_no_latent(tmp_path):
    write_samples([sample(4)], "text_only", tmp_path / "out", "s")
    (back,) = read_all(tmp_path / "out")[0]
    assert back.vae_latent is None and back.num_frames == 0 and back.caption.endswith("4")
    assert np.array_equal(back.text_embedding, sample(4).text_embedding)


@pytest.mark.parametrize(
    ("spoilt", "text"),
    [
        (Sample("a", "", np.ones((2, 3)), np.full((1, 1, 2, 2), np.nan)), "not finite"),
        (Sample("a", "", np.ones((2, 3)), np.full((1, 1, 2, 2), 1e300)), "cannot hold"),
        (Sample("a", "", np.ones((2, 3)), np.ones((1, 2, 2))), r"\[C, T, h, w\]"),
        (Sample("a", "", np.ones(3), np.ones((1, 1, 2, 2))), r"\[L, D\]"),
        (Sample("a", "", np.ones((2, 3))), "no vae_latent"),
    ],
)
def test_what_would_corrupt_silently_is_not_written(spoilt, text, tmp_path):
    with pytest.raises(UserError, match=text):
        write_samples([spoilt], "t2v", tmp_path / "out", "s")
    assert not contents(tmp_path / "out")


def test_bad_rows_are_told_with_file_and_row(tmp_path):
    rows = rows_of(*(sample(number) for number in range(7)))
    rows[1]["vae_latent_bytes"] = rows[1]["vae_latent_bytes"][:-4]
    rows[2]["vae_latent_shape"] = [2, 3, 0, 6]
    rows[3]["text_embedding_bytes"] = b""
    rows[4]["vae_latent_bytes"] = rows[4]["vae_latent_bytes"][: len(rows[4]["vae_latent_bytes"]) // 2]  # bf16, as its dtype says
    rows[4]["vae_latent_dtype"] = "bfloat16"
    rows[5]["vae_latent_dtype"] = "torch.bfloat16"  # but the bytes are float32
    file = write_rows(tmp_path / "a.parquet", rows)
    back, findings = read_all(tmp_path)
    assert [one.id for one in back] == ["clip0.mp4", "clip5.mp4", "clip6.mp4"]
    assert [(left.path, left.rows) for left in findings.skipped] == [(file, f"row {n}") for n in (1, 2, 3, 4)]
    told = [str(left) for left in findings.skipped]
    assert "572 bytes; float32 of shape [2, 3, 4, 6] has 576" in told[0] and "vae_latent_shape" in told[1] and "is empty" in told[2]
    assert "288 bytes" in told[3] and "bfloat16" in told[3]
    (notice,) = findings.notices()
    assert notice.startswith("in 1 rows vae_latent_dtype says torch.bfloat16, but the bytes are float32")


def test_damaged_files_are_told_and_the_rest_is_read(tmp_path):
    out = tmp_path / "out"
    good, broken = write_samples([sample(number) for number in range(65)], "t2v", out, "s")
    data = bytearray(good.read_bytes())
    place = data.index(sample(20).vae_latent.tobytes()[:64])  # too random for zstd, so it stands there as it is
    data[place + 8] ^= 255
    good.write_bytes(bytes(data))
    broken.write_bytes(broken.read_bytes()[:-20])
    (out / PLACE / "other.parquet").write_text("not Parquet")
    pq.write_table(pa.table({"a": [1]}), out / PLACE / "strange.parquet")
    back, findings = read_all(out)
    assert [one.id for one in back] == [f"clip{number}.mp4" for number in range(64) if number != 20]
    assert [(left.path.name, left.rows) for left in findings.skipped] == [
        ("data_chunk_0.parquet", "row 20"), ("data_chunk_1.parquet", ""), ("other.parquet", ""), ("strange.parquet", ""),
    ]  # fmt: skip
    assert "columns are a" in findings.skipped[3].reason


def test_a_row_group_that_breaks_off_costs_its_rows_only(tmp_path):
    file = write_rows(
        tmp_path / "a.parquet", rows_of(*(sample(n) for n in range(6))), row_group_size=3, use_dictionary=False, write_page_checksum=True
    )
    data = bytearray(file.read_bytes())
    latents = pq.read_metadata(file).row_group(0).column(1)
    data[latents.data_page_offset + latents.total_compressed_size - 100] ^= 255
    file.write_bytes(bytes(data))
    back, findings = read_all(tmp_path)
    assert [one.id for one in back] == ["clip3.mp4", "clip4.mp4", "clip5.mp4"]
    assert [left.rows for left in findings.skipped] == ["rows 0 to 2"]


def test_both_layouts_in_order_of_numbers_without_validation_and_caches(tmp_path):
    for name in (
        "combined_parquet_dataset/worker_0/data_chunk_0.parquet", "training_dataset/worker_1/worker_0/data_chunk_2.parquet",
        "training_dataset/worker_1/worker_0/data_chunk_10.parquet", "training_dataset/worker_10/deep/er/x.PARQUET",
    ):  # fmt: skip
        write_rows(tmp_path / name, rows_of(sample(0)))
    names = [path.relative_to(tmp_path).as_posix() for path in parquet_files(tmp_path)]
    assert [name.rpartition("/")[2] for name in names] == [
        "data_chunk_0.parquet",
        "data_chunk_2.parquet",
        "data_chunk_10.parquet",
        "x.PARQUET",
    ]
    write_rows(tmp_path / "validation_dataset/worker_0/data_chunk_0.parquet", rows_of(sample(1)))
    write_rows(tmp_path / "training_dataset/.hidden.parquet", rows_of(sample(1)))
    (tmp_path / "map_style_cache").mkdir()
    (tmp_path / "map_style_cache/file_info.pkl").write_bytes(b"cos\nsystem\n(S'exit 1'\ntR.")
    assert [path.relative_to(tmp_path).as_posix() for path in parquet_files(tmp_path)] == names
    assert len(read_all(tmp_path)[0]) == 4
    assert len(parquet_files(tmp_path / "validation_dataset")) == 1
    with pytest.raises(UserError, match=r"no \.parquet file"):
        parquet_files(tmp_path / "map_style_cache")


class Loads:
    """Samples that say when they are loaded, and end the process at one of them."""

    def __init__(self, count, last=-1, end=None):
        self.count, self.last, self.end, self.loaded = count, last, end, []

    def __len__(self):
        return self.count

    def __getitem__(self, number):
        if number == self.last:
            self.end()
        self.loaded.append(number)
        return sample(number)


KILLED = """
import os, signal, sys
from pathlib import Path
from tests.data.test_parquet import Loads
from trainer.data.parquet.write import write_samples
write_samples(Loads(130, int(sys.argv[2]), lambda: os.kill(os.getpid(), signal.SIGKILL)), "t2v", Path(sys.argv[1]), "s")
"""


@pytest.mark.parametrize("last", [0, 64, 100])
def test_killed_while_writing_then_again_gives_the_same_bytes(last, tmp_path, root):
    out = tmp_path / "out"
    ended = subprocess.run(
        [sys.executable, "-c", KILLED, str(out), str(last)], cwd=root, env={**os.environ, "PYTHONPATH": "."}, check=False
    )
    assert ended.returncode == -signal.SIGKILL
    assert len(contents(out)) == last // 64 and len(read_all(out)[0]) == last // 64 * 64 if last else not contents(out)
    kept = {path: path.stat().st_mtime_ns for path in out.rglob("*.parquet")}
    (out / "map_style_cache").mkdir()
    (out / "map_style_cache/file_info.pkl").write_bytes(b"an old list")
    again = Loads(130)
    write_samples(again, "t2v", out, "s")
    assert again.loaded == list(range(last // 64 * 64, 130))
    assert {path: path.stat().st_mtime_ns for path in kept} == kept
    write_samples(Loads(130), "t2v", tmp_path / "whole", "s")
    assert contents(out) == contents(tmp_path / "whole") and len(contents(out)) == 3
    assert not list(out.rglob("*.part")) and not list(out.rglob("*.pkl"))
    idle = Loads(130)
    write_samples(idle, "t2v", out, "s")
    assert not idle.loaded


def test_a_cancel_leaves_whole_files_only(tmp_path):
    def stop():
        raise Interrupted

    with pytest.raises(Interrupted):
        write_samples(Loads(70, 66, stop), "t2v", tmp_path, "s")
    assert list(contents(tmp_path)) == [f"{PLACE}/data_chunk_0.parquet"] and not list(tmp_path.rglob("*.part"))


def test_a_folder_with_other_content_is_refused(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(UserError, match="not empty"):
        write_samples([sample(0)], "t2v", tmp_path, "s")
    with pytest.raises(UserError, match="is a file"):
        write_samples([sample(0)], "t2v", tmp_path / "notes.txt", "s")
    out = tmp_path / "out"
    (file,) = write_samples([sample(0)], "t2v", out, "s")
    for other in ((sample(0),) * 2, "t2v", "s"), ([sample(0)], "i2v", "s"), ([sample(0)], "t2v", "another"):
        with pytest.raises(UserError, match="other clips"):
            write_samples(other[0], other[1], out, other[2])
    shutil.copy(file, file.with_name("data_chunk_1.parquet"))
    with pytest.raises(UserError, match=r"data_chunk_1.parquet: does not belong"):
        write_samples([sample(0)], "t2v", out, "s")
    with pytest.raises(UserError, match="no sample"):
        write_samples([], "t2v", tmp_path / "new", "s")


def test_a_folder_being_written_is_refused(tmp_path):
    from filelock import FileLock

    write_samples([sample(0)], "t2v", tmp_path, "s")
    with FileLock(tmp_path / f"{MARKER}.lock"), pytest.raises(UserError, match="another process"):
        write_samples([sample(0)], "t2v", tmp_path, "s")


def test_without_pyarrow_the_command_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    for use in (lambda: write_samples([sample(0)], "t2v", tmp_path, "s"), lambda: list(file_samples(Path(__file__), Findings()))):
        with pytest.raises(UserError, match=r'Python package pyarrow: .*-m pip install "pyarrow>=14"'):
            use()
