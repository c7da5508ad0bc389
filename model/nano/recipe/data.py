"""Tokenizer, and token streams ready for a device."""

import json
import pathlib

import numpy
import torch

import config
import corpus

# Llama-3's pre-tokenizer.
PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def train_tokenizer(texts, vocab_size):
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors, trainers

    tok = Tokenizer(models.BPE(ignore_merges=True))
    tok.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(PATTERN), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    ])
    tok.decoder = decoders.ByteLevel()
    tok.train_from_iterator(
        texts,
        trainers.BpeTrainer(
            vocab_size=vocab_size,
            special_tokens=config.SPECIAL_TOKENS,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        ),
        length=len(texts),
    )
    begin = config.SPECIAL_TOKENS[config.BEGIN]
    tok.post_processor = processors.TemplateProcessing(
        single=f"{begin} $A", pair=f"{begin} $A {begin}:1 $B:1", special_tokens=[(begin, config.BEGIN)]
    )
    return tok


def save_tokenizer(tok, folder, max_tokens):
    folder.mkdir(parents=True, exist_ok=True)
    tok.save(str(folder / "tokenizer.json"), pretty=False)
    names = dict(zip(("bos_token", "eos_token", "pad_token"), config.SPECIAL_TOKENS))
    flags = {"lstrip": False, "normalized": False, "rstrip": False, "single_word": False, "special": True}
    described = {
        "added_tokens_decoder": {str(i): {"content": t, **flags} for i, t in enumerate(config.SPECIAL_TOKENS)},
        **names,
        "clean_up_tokenization_spaces": False,
        "model_input_names": ["input_ids", "attention_mask"],
        "model_max_length": max_tokens,
        "tokenizer_class": "PreTrainedTokenizerFast",
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(described, indent=1) + "\n")


def load_tokenizer(folder):
    from tokenizers import Tokenizer

    return Tokenizer.from_file(str(folder / "tokenizer.json"))


def encode_files(tok, files):
    """Every file as begin, its tokens, end; all in one array."""
    encoded = tok.encode_batch([text for _, text in files])
    parts = [numpy.array(e.ids + [config.END], dtype=numpy.int32) for e in encoded]
    return numpy.concatenate(parts)


def prepare(corpus_folder, pair_folder, work, vocab_size):
    """Trains the tokenizer, if the pair has none yet, and writes train.npy and heldout.npy."""
    train = corpus.read(pathlib.Path(corpus_folder) / "train.xz")
    heldout = corpus.read(pathlib.Path(corpus_folder) / "heldout.xz")
    folder = pair_folder / "target"
    if not (folder / "tokenizer.json").exists():
        tok = train_tokenizer([text for _, text in train], vocab_size)
        save_tokenizer(tok, folder, config.Target().max_position_embeddings)
    tok = load_tokenizer(folder)
    for name, files in (("train", train), ("heldout", heldout)):
        ids = encode_files(tok, files)
        numpy.save(work / f"{name}.npy", ids)
        size = sum(len(t.encode()) for _, t in files)
        print(f"{name}: {len(files)} files, {size} bytes, {len(ids)} tokens, {size / len(ids):.3f} bytes a token", flush=True)


def load_tokens(work, name, device):
    return torch.from_numpy(numpy.load(work / f"{name}.npy")).long().to(device)


class Windows:
    """Endless shuffled windows of a token stream; each epoch cuts the stream at another offset."""

    def __init__(self, tokens, length, seed):
        self.tokens, self.length = tokens, length
        self.random = torch.Generator().manual_seed(seed)
        self.starts = torch.empty(0, dtype=torch.long)

    def next(self, rows):
        """Returns inputs (begin token first) and targets, each [rows, length]."""
        while len(self.starts) < rows:
            offset = int(torch.randint(self.length, (1,), generator=self.random))
            starts = torch.arange(offset, len(self.tokens) - self.length, self.length)
            order = torch.randperm(len(starts), generator=self.random)
            self.starts = torch.cat((self.starts, starts[order]))
        starts, self.starts = self.starts[:rows], self.starts[rows:]
        index = starts.to(self.tokens.device)[:, None] + torch.arange(self.length, device=self.tokens.device)
        targets = self.tokens[index]
        return with_begin(targets), targets


def with_begin(rows):
    return torch.cat((torch.full_like(rows[:, :1], config.BEGIN), rows[:, :-1]), 1)
