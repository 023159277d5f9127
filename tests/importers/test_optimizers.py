"""Optimizers of other trainers: names, classes of pytorch_optimizer, betas and arguments."""

from __future__ import annotations

import inspect
import json
from pathlib import Path

import pytest

from trainer.combinations import illegal
from trainer.importers import import_config
from trainer.importers.result import Imported
from trainer.job import OptimizerSettings, TrainingJob
from trainer.optimizer_kinds import KINDS, LIBRARY, optimizer_class
from trainer.optimizer_options import OPTIONS, option_defaults
from trainer.optimizer_trial import check_optimizer

SPEED = {"foreach", "fused", "maximize", "capturable", "differentiable", "kwargs"}
NAMED = [name for name in KINDS if name not in ("other", "AdamW 8-bit")]


def imported(folder: Path, optimizer: str, top: str = "") -> Imported:
    """A file of diffusion-pipe with this [optimizer], and settings of the whole run."""
    file = folder / "config.toml"
    file.write_text(
        f"{top}\n[model]\ntype = 'wan'\nckpt_path = '/models/a'\n[adapter]\ntype = 'lora'\nrank = 16\n[optimizer]\n{optimizer}\n"
    )
    return import_config([file])


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("type = 'adamw_optimi'\nlr = 1e-4\neps = 1e-8", {"learning_rate": 1e-4}),
        ("type = 'AdamW8bit'\nlr = 1e-4\nbetas = [0.9, 0.95]", {"learning_rate": 1e-4, "name": "AdamW 8-bit", "beta2": 0.95}),
        ("type = 'Prodigy'\nlr = 1\nd_coef = 0.5\neps = 1e-6", {"learning_rate": 1, "name": "Prodigy", "options": "d_coef=0.5 eps=1e-06"}),
        ("type = 'CAME'\nbetas = [0.9, 0.999, 0.99]", {"name": "CAME", "options": "betas=(0.9, 0.999, 0.99)"}),
        ("type = 'SOAP'\nprecondition_frequency = 5", {"name": "other", "other": "SOAP", "options": "precondition_frequency=5"}),
        ("type = 'Kron'", {"name": "other", "other": "Kron"}),
    ],
)
def test_optimizers_of_diffusion_pipe(tmp_path: Path, written: str, expected: dict[str, object]) -> None:
    result = imported(tmp_path, written)
    assert result.job.get("optimizer", {}) == expected
    assert not [line for line in result.lines if line.source.startswith("optimizer.") and line.kind == "unsupported"]
    TrainingJob.parse(result.job)


def test_what_is_not_here_is_told(tmp_path: Path) -> None:
    result = imported(tmp_path, "type = 'automagic'\nbetas = [0.9]\nkahan_sum = true")
    why = {line.source: line.why for line in result.lines if line.kind == "unsupported"}
    assert why["optimizer.type"] == "AdamW is used instead; check the learning rate"
    assert why["optimizer.betas"] == "an optimizer has two betas, or three" and "without it" in why["optimizer.kahan_sum"]
    assert "optimizer" not in result.job


def test_state_on_the_host_is_taken_over_where_training_takes_it(tmp_path: Path) -> None:
    offload = "type = 'offload'\nlr = 1e-4"
    result = imported(tmp_path, offload, "gradient_clipping = 0")
    assert result.job["optimizer"] == {"learning_rate": 1e-4, "offload_state": True, "max_grad_norm": 0}
    for top, setting in (
        ("", "optimizer.max_grad_norm"),
        ("gradient_clipping = 0\ngradient_accumulation_steps = 4", "schedule.accumulation"),
    ):
        result = imported(tmp_path, offload, top)
        (why,) = (line.why for line in result.lines if line.source == "optimizer.type" and line.kind == "unsupported")
        assert f"optimizer.offload_state and {setting} do not go together" in why and why.endswith(
            "optimizer.offload_state is false instead"
        )
        assert "offload_state" not in result.job["optimizer"] and not illegal(TrainingJob.parse(result.job))


def test_gradient_release_has_no_clipping_as_there(tmp_path: Path) -> None:
    result = imported(tmp_path, "type = 'adamw_optimi'\nlr = 1e-4\ngradient_release = true", "gradient_clipping = 0.5")
    lines = {line.source: line for line in result.lines}
    assert result.job["optimizer"] == {"learning_rate": 1e-4, "max_grad_norm": 0} and lines["gradient_clipping"].kind == "ignored"
    assert "those of a LoRA are small" in lines["optimizer.gradient_release"].why
    result = imported(tmp_path, "type = 'Kron'\ngradient_release = false", "gradient_clipping = 0.5")
    assert result.job["optimizer"] == {"name": "other", "other": "Kron", "max_grad_norm": 0.5}  # no argument of the class


def fates(result: Imported, place: str) -> dict[str, str]:
    """What became of each setting at a place: its kind, or the option that it became."""
    lines = {line.source.removeprefix("--").removeprefix(place): line for line in result.lines if place in line.source}
    return {name: str(line.value) if line.target == "optimizer.options" else line.kind for name, line in lines.items()}


def from_musubi(folder: Path, optimizer: str, arguments: str) -> Imported:
    file = folder / "train.sh"
    flags = f"--optimizer_type {optimizer} --learning_rate 1e-3 --optimizer_args {arguments} --network_dim 8"
    file.write_text(f"python wan_train_network.py {flags}\n", encoding="utf-8")
    return import_config([file])


def from_onetrainer(folder: Path, optimizer: dict[str, object]) -> Imported:
    file = folder / "config.json"
    file.write_text(json.dumps({"training_method": "LORA", "learning_rate": 1, "optimizer": optimizer}), encoding="utf-8")
    return import_config([file])


@pytest.mark.parametrize("name", NAMED)
def test_options_that_are_known_are_those_of_the_class(name: str) -> None:
    taken = inspect.signature(optimizer_class(OptimizerSettings.model_validate({"name": name}), "cpu").__init__).parameters
    assert set(OPTIONS[name]) == set(taken) - SPEED - {"self", "params", "lr", "weight_decay", "adjust_lr_fn"}
    assert {option: taken[option].default for option in OPTIONS[name]} == OPTIONS[name]


def test_options_are_known_of_all_that_have_a_name() -> None:
    assert set(OPTIONS) == set(KINDS) - {"other"}
    assert option_defaults(OptimizerSettings(name="Prodigy"))["bias_correction"] is True
    assert option_defaults(OptimizerSettings(name="other", other="soap"))["precondition_frequency"] == 10


@pytest.mark.parametrize(
    ("name", "arguments", "expected"),
    [
        ("adafactor", "relative_step=False scale_parameter=False warmup_init=False weight_decay=0",
         {"relative_step": "ignored", "scale_parameter": "ignored", "warmup_init": "ignored", "weight_decay": "mapped"}),
        ("adafactor", "relative_step=True scale_parameter=True", {"relative_step": "unsupported", "scale_parameter": "unsupported"}),
        ("adafactor", "clip_threshold=2.0 decay_rate=-0.7 'eps=(1e-30,1e-3)'",
         {"clip_threshold": "d=2", "decay_rate": "beta2_decay=-0.7", "eps": "eps=(1e-30, 0.001)"}),
        ("adafactor", "eps=1e-30", {"eps": "unsupported"}),
        ("adafactor", "clip_threshold=0.5 decay_rate=nan", {"clip_threshold": "unsupported", "decay_rate": "unsupported"}),
        ("prodigyopt.Prodigy", "beta3=2 d_coef=inf growth_rate=inf",
         {"beta3": "unsupported", "d_coef": "unsupported", "growth_rate": "ignored"}),
        ("came_pytorch.CAME", "betas=0.9,0.999,1.5", {"betas": "unsupported"}),
        ("prodigyopt.Prodigy", "decouple=True use_bias_correction=False slice_p=11 d_coef=2 d0=1e-05 fsdp_in_use=False",
         {"decouple": "ignored", "use_bias_correction": "bias_correction=false", "slice_p": "unsupported", "d_coef": "d_coef=2",
          "d0": "d0=1e-05", "fsdp_in_use": "ignored"}),
        ("came_pytorch.CAME", "'eps=(1e-29, 1e-16)' betas=0.9,0.999,0.99",
         {"eps": "eps1=1e-29 eps2=1e-16", "betas": "betas=(0.9, 0.999, 0.99)"}),
        ("came_pytorch.CAME", "eps=1e-29", {"eps": "eps1=1e-29"}),
        ("lion_pytorch.Lion", "use_triton=True eps=1e-8 cautious=True 'betas=(0.95,0.98)'",
         {"use_triton": "ignored", "eps": "unsupported", "cautious": "unsupported", "betas": "mapped"}),
        ("adamw", "eps=1e-8 amsgrad=True 'betas=(0.9,0.999,0.99)'", {"eps": "ignored", "amsgrad": "amsgrad=true", "betas": "mapped"}),
        ("adamw8bit", "amsgrad=True is_paged=True eps=1e-6", {"amsgrad": "unsupported", "is_paged": "unsupported", "eps": "eps=1e-06"}),
        ("adamw", "'eps=(1,2)' 'eps2={1}' lr=3 amsgrad=1",
         {"eps": "unsupported", "eps2": "unsupported", "lr": "unsupported", "amsgrad": "unsupported"}),
        ("torch.optim.SGD", "momentum=0 nesterov=False dampening=0.1",
         {"momentum": "momentum=0", "nesterov": "ignored", "dampening": "dampening=0.1"}),
        ("schedulefree.AdamWScheduleFree", "warmup_steps=2.5 r=0.5 foreach=False",
         {"warmup_steps": "unsupported", "r": "r=0.5", "foreach": "ignored"}),
    ],
)  # fmt: skip
def test_arguments_that_the_class_does_not_take_are_dropped(tmp_path: Path, name: str, arguments: str, expected: dict[str, str]) -> None:
    """They were handed on, and the run refused the imported job."""
    result = from_musubi(tmp_path, name, arguments)
    assert fates(result, "optimizer_args.") == expected
    job = TrainingJob.parse(result.job)
    assert job.optimizer.name == "AdamW 8-bit" or not check_optimizer(job)


ONETRAINER = {  # its own defaults of each, as its saved configurations have them
    "ADAFACTOR": {"eps": 1e-30, "eps2": 1e-3, "clip_threshold": 1.0, "decay_rate": -0.8, "beta1": None, "scale_parameter": False,
                  "relative_step": False, "warmup_init": False},
    "PRODIGY": {"beta1": 0.9, "beta2": 0.999, "beta3": None, "eps": 1e-8, "decouple": True, "use_bias_correction": False, "d0": 1e-6,
                "safeguard_warmup": False, "d_coef": 1.0, "growth_rate": float("inf"), "fsdp_in_use": False, "slice_p": 11},
    "PRODIGY_ADV": {"beta1": 0.9, "beta2": 0.99, "d_coef": 2.0, "d0": 1e-5, "slice_p": 11, "kourkoutas_beta": False},
    "LION": {"beta1": 0.9, "beta2": 0.99, "use_triton": False, "eps": None},
    "CAME": {"beta1": 0.9, "beta2": 0.999, "beta3": 0.9999, "eps": 1e-30, "eps2": 1e-16, "use_cautious": False},
    "MUON": {"momentum": 0.95, "MuonWithAuxAdam": True, "muon_adam_lr": 3e-4, "muon_adam_config": {}},
    "SCHEDULE_FREE_ADAMW": {"beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "r": 0.0, "weight_lr_power": 2.0, "foreach": False},
    "ADAMW": {"beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "amsgrad": False, "capturable": False, "maximize": False, "d_coef": 2.0},
    "SGD": {"momentum": 0, "dampening": 0, "nesterov": False},
    "ADOPT": {"beta1": 0.9, "beta2": 0.9999, "decoupled_decay": False, "fixed_decay": False, "cautious": False, "eps": 1e-6},
    "AdEMAMix": {"beta1": 0.9, "beta2": 0.999, "beta3": 0.9999, "eps": 1e-8, "alpha": 5, "optim_bits": 32, "is_paged": False},
    "DADAPT_ADAN": {"beta1": 0.98, "beta2": 0.92, "beta3": 0.99, "eps": 1e-8, "no_prox": False, "log_every": 0, "d0": 1e-6},
    "LAMB": {"bias_correction": True, "beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "adam_w_mode": True, "max_unorm": 1.0},
    "TIGER": {"beta1": 0.965, "decoupled_decay": True, "fixed_decay": False},
    "YOGI": {"beta1": 0.9, "beta2": 0.999, "r": 0.95, "adanorm": False, "eps": 1e-3, "initial_accumulator": 1e-6},
}  # fmt: skip


@pytest.mark.parametrize("name", ONETRAINER)
def test_what_onetrainer_saves_runs(tmp_path: Path, name: str) -> None:
    result = from_onetrainer(tmp_path, {"optimizer": name, **ONETRAINER[name]})
    assert not check_optimizer(TrainingJob.parse(result.job))


def test_betas_of_a_class_that_is_named_are_its_option(tmp_path: Path) -> None:
    """They were settings of the job, of which such a class takes none."""
    result = from_onetrainer(tmp_path, {"optimizer": "ADOPT", "beta1": 0.8, "beta2": 0.9999})
    assert result.job["optimizer"]["options"] == "betas=(0.8, 0.9999)"
    assert fates(result, "optimizer.beta") == {"1": "betas=(0.8, 0.9999)", "2": "betas=(0.8, 0.9999)"}
    for given, kind in (((0.8, 1.5), "unsupported"), ((0.9, 0.9999), "ignored")):
        other = from_onetrainer(tmp_path, {"optimizer": "ADOPT", "beta1": given[0], "beta2": given[1]})
        assert fates(other, "optimizer.beta") == {"1": kind, "2": kind} and "options" not in other.job["optimizer"]
    listed = imported(tmp_path, "type = 'SOAP'\nbetas = [0.9, 0.9]")
    assert listed.job["optimizer"] == {"name": "other", "other": "SOAP", "options": "betas=(0.9, 0.9)"}
    assert fates(imported(tmp_path, "type = 'TIGER'\nbetas = [0.9, 0.9]"), "optimizer.b") == {"etas": "unsupported"}


def test_arguments_may_stand_before_the_name_of_the_optimizer(tmp_path: Path) -> None:
    """They were taken for those of AdamW."""
    result = imported(tmp_path, "d_coef = 0.5\nlr = 1\ntype = 'Prodigy'")
    assert result.job["optimizer"] == {"learning_rate": 1, "name": "Prodigy", "options": "d_coef=0.5"}


def test_an_argument_that_is_given_twice_is_told(tmp_path: Path) -> None:
    result = from_onetrainer(tmp_path, {"optimizer": "PRODIGY", "decouple": False, "weight_decouple": False})
    assert result.job["optimizer"]["options"] == "weight_decouple=false"
    assert fates(result, "optimizer.")["weight_decouple"] == "unsupported"


@pytest.mark.parametrize("name", ["Nonesuch", "SAM", "Lookahead"])
def test_a_class_that_is_not_there_or_cannot_be_made_gives_way(tmp_path: Path, name: str) -> None:
    result = imported(tmp_path, f"type = '{name}'\nrho = 0.05\neps = 1e-6")
    assert result.job["optimizer"] == {"options": "eps=1e-06"} and fates(result, "optimizer.")["rho"] == "unsupported"
    (why,) = (line.why for line in result.lines if line.source == "optimizer.type" and line.kind == "unsupported")
    assert name in why and "AdamW is used instead" in why


def test_without_the_library_its_other_classes_get_no_options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, LIBRARY, None)
    result = imported(tmp_path, "type = 'SOAP'\nprecondition_frequency = 5")
    assert result.job["optimizer"] == {"name": "other", "other": "SOAP"}
    (why,) = (line.why for line in result.lines if line.kind == "unsupported" and "precondition" in line.source)
    assert "not known what SOAP takes" in why and "pip install" in why
    assert imported(tmp_path, "type = 'Prodigy'\nd_coef = 0.5").job["optimizer"]["options"] == "d_coef=0.5"
