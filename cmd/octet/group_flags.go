package main

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"github.com/octet-run/octet/coordinator"
	"github.com/octet-run/octet/kernels/cuda"
	"github.com/octet-run/octet/model"
	"github.com/octet-run/octet/speculation"
)

// groupSettings are the flags of every command that starts a group.
type groupSettings struct {
	model     string
	name      string // of the model where it is not its folder's
	draft     string
	ranks     int
	backend   string
	speculate string
	tree      string
	experts   string
	draftOn   string

	context  int
	batch    int
	kvTokens int
	threads  int

	loadLimit byteSize

	requireFast bool

	gpus []cuda.DeviceInfo // found for --backend cuda
}

func (s *groupSettings) register(flags *pflag.FlagSet) {
	registerModel(flags, &s.model)
	flags.StringVar(&s.draft, "draft", "", "folder of an EAGLE-3 drafter, or none (default: the embedded one with the embedded model)")
	flags.IntVar(&s.ranks, "ranks", 8, "number of rank processes, 1 to 8")
	flags.StringVar(&s.backend, "backend", "auto", "what ranks compute on: cpu, cuda, or auto, which is cpu for now")
	flags.StringVar(&s.speculate, "speculate", "auto", "who drafts: auto, eagle3, ngram or off")
	flags.StringVar(&s.tree, "tree", "", "shape of the draft: topk=4,steps=5,tokens=16; topk=1 is a chain")
	flags.StringVar(&s.experts, "experts", "split", "how experts are divided: split (each by width) or whole")
	flags.StringVar(&s.draftOn, "draft-on", "root", "which ranks run the drafter: root or all")
	flags.IntVar(&s.context, "context", 0, "longest sequence in tokens (default: the model's, at most 32768)")
	flags.IntVar(&s.batch, "batch", 8, "sequences that run at once")
	flags.IntVar(&s.kvTokens, "kv-tokens", 0, "tokens that the KV cache holds (default: from the batch and the memory there is)")
	flags.IntVar(&s.threads, "threads", 0, "threads per rank (default: the processors the rank has to itself)")
	flags.Var(&s.loadLimit, "load-limit", "how much of the copied weights' files may fill the page cache while loading, such as 1GiB (default: all)")
	flags.BoolVar(&s.requireFast, "require-fast", false, "refuse to start where the fast path of a collective cannot be had")
}

// maxThreads is how many a rank has at most: more than the processors of any node.
const maxThreads = 256

// validate checks what can be checked before the model is read.
func (s *groupSettings) validate() error {
	switch {
	case s.ranks < 1 || s.ranks > model.MaxRanks:
		return usagef("--ranks %d: a group has 1 to %d ranks", s.ranks, model.MaxRanks)
	case s.batch < 1 || s.batch > verifyRows:
		return usagef("--batch %d: from 1 to %d sequences can run at once", s.batch, verifyRows)
	case s.context < 0 || s.kvTokens < 0 || s.threads < 0:
		return usagef("--context, --kv-tokens and --threads must not be negative")
	case s.threads > maxThreads:
		return usagef("--threads %d: a rank has at most %d", s.threads, maxThreads)
	case s.experts != "split" && s.experts != "whole":
		return usagef("--experts %q: choose split or whole", s.experts)
	case s.draftOn != "root" && s.draftOn != "all":
		return usagef("--draft-on %q: choose root or all", s.draftOn)
	}
	if err := s.checkBackend(); err != nil {
		return err
	}
	if err := s.resolve(); err != nil {
		return err
	}
	_, err := s.drafting()
	return err
}

func (s *groupSettings) checkBackend() error {
	switch s.backend {
	case "auto", "cpu":
		return nil
	case "cuda":
		if s.gpus != nil {
			return nil
		}
		var err error
		s.gpus, err = findGPUs()
		return err
	}
	return usagef("--backend %q: choose auto, cpu or cuda", s.backend)
}

// resolve puts the folders of the embedded pair where no model was named.
func (s *groupSettings) resolve() error {
	if s.model != "" {
		return nil
	}
	pair, err := unpackPair()
	if err != nil {
		return err
	}
	s.model, s.name = pair.Target, embeddedName
	if s.draft == "" {
		s.draft = pair.Draft
	}
	return nil
}

// modelName is what clients call the model.
func (s *groupSettings) modelName() string {
	if s.name != "" {
		return s.name
	}
	return modelName(s.model)
}

// drafter is the drafter's folder, empty for none.
func (s *groupSettings) drafter() string {
	if s.draft == "none" || s.speculate == "off" && s.draft == "" {
		return ""
	}
	return s.draft
}

// drafting is who drafts, and how.
func (s *groupSettings) drafting() (coordinator.Drafting, error) {
	mode, err := coordinator.ParseMode(s.speculate)
	if err != nil {
		return coordinator.Drafting{}, usageError{fmt.Errorf("--speculate: %w", err)}
	}
	shape, err := parseTree(s.tree)
	if err != nil {
		return coordinator.Drafting{}, usageError{fmt.Errorf("--tree: %w", err)}
	}
	if mode == coordinator.ModeEagle3 && s.drafter() == "" {
		return coordinator.Drafting{}, usagef("--speculate eagle3 needs a drafter: give its folder with --draft")
	}
	return coordinator.Drafting{Mode: mode, Shape: shape}, nil
}

// parseTree reads topk=4,steps=5,tokens=16. What is left out follows from the
// rest: topk is 1, and a chain of S steps has S+1 tokens.
func parseTree(text string) (speculation.Shape, error) {
	var shape speculation.Shape
	if text == "" {
		return shape, nil
	}
	for _, part := range strings.Split(text, ",") {
		key, value, _ := strings.Cut(part, "=")
		n, err := strconv.Atoi(value)
		if err != nil || n < 1 {
			return shape, fmt.Errorf("%q is not KEY=NUMBER; write topk=4,steps=5,tokens=16", part)
		}
		switch strings.TrimSpace(key) {
		case "topk":
			shape.TopK = n
		case "steps":
			shape.Steps = n
		case "tokens":
			shape.Nodes = n
		default:
			return shape, fmt.Errorf("%q is not one of topk, steps, tokens", key)
		}
	}
	if shape.TopK == 0 {
		shape.TopK = 1
	}
	if shape.Nodes == 0 && shape.TopK == 1 {
		shape.Nodes = shape.Steps + 1
	}
	return shape, shape.Validate()
}

func usagef(format string, args ...any) error {
	return usageError{fmt.Errorf(format, args...)}
}
