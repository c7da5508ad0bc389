"""One command for the whole pair: corpus, tokenizer, target, drafter, goldens, model card.

    python3 run.py --goroot "$(go env GOROOT)" --work build --out ../pair

A stage whose result is already in --work is not run again. The published pair's step counts are in its run.json; give them
with --target-steps, --drafter-steps and --pool-batches to train exactly as long, or give seconds to fill a time instead.
"""

import argparse
import dataclasses
import pathlib
import subprocess
import sys
import time

import torch

import config
import data
import train_drafter
import train_target


def smoke():
    """Every stage at toy length: shapes, files and the compiler, not quality."""
    return (
        dataclasses.replace(config.Generation(), short_rows=1024, long_rows=512, new_tokens=192),
        {"steps": 40},
        {"steps": 40, "pool_batches": 2},
    )


def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--goroot")
    p.add_argument("--work", type=pathlib.Path, required=True, help="corpus, tokens and other intermediate files")
    p.add_argument("--out", type=pathlib.Path, required=True, help="where target/, draft/, expected.json … are written")
    p.add_argument("--stages", default="corpus,tokens,target,drafter,evaluate")
    p.add_argument("--smoke", action="store_true", help="a few steps of everything")
    p.add_argument("--target-steps", type=int)
    p.add_argument("--target-seconds", type=float, default=280)
    p.add_argument("--drafter-steps", type=int)
    p.add_argument("--drafter-seconds", type=float, default=150)
    p.add_argument("--pool-batches", type=int)
    p.add_argument("--pool-seconds", type=float, default=45)
    return p.parse_args()


def main():
    a = arguments()
    started = time.time()
    a.work.mkdir(parents=True, exist_ok=True)
    a.out.mkdir(parents=True, exist_ok=True)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.set_float32_matmul_precision("high")
    own = config.Generation()
    target = {"steps": a.target_steps, "seconds": a.target_seconds}
    drafter = {
        "steps": a.drafter_steps,
        "seconds": a.drafter_seconds,
        "pool_seconds": a.pool_seconds,
        "pool_batches": a.pool_batches,
    }
    if a.smoke:
        own, target, drafter = smoke()
    c, d = config.Target(), config.Drafter()
    corpus_folder = a.work / "corpus"
    here = pathlib.Path(__file__).parent
    for stage in a.stages.split(","):
        if stage == "corpus" and not (corpus_folder / "corpus.json").exists():
            subprocess.run([sys.executable, here / "corpus.py", "--goroot", a.goroot, "--out", corpus_folder], check=True)
        elif stage == "tokens" and not (a.work / "heldout.npy").exists():
            data.prepare(corpus_folder, a.out, a.work, c.vocab_size)
        elif stage == "target" and not (a.work / "target.json").exists():
            train_target.train(a.work, a.out, device, config.TargetTraining(), c, **target)
        elif stage == "drafter" and not (a.work / "drafter.json").exists():
            train_drafter.train(a.work, a.out, device, config.DrafterTraining(), c, d, own, **drafter)
        elif stage == "evaluate":
            # A process of its own: the reference must not inherit the training's reduced matmul precision.
            subprocess.run([sys.executable, here / "evaluate.py", "--work", a.work, "--pair", a.out], check=True)
        print(f"[{time.time() - started:.0f}s] {stage} done", flush=True)


if __name__ == "__main__":
    main()
