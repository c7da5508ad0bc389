package load

import (
	"github.com/octet-run/octet/kernels"
	"github.com/octet-run/octet/model"
	"github.com/octet-run/octet/model/checkpoint"
	"github.com/octet-run/octet/model/deepseek"
	"github.com/octet-run/octet/model/layers"
	"github.com/octet-run/octet/model/llama"
)

// Plan is the slices that one rank would take, from the headers alone. It
// reports every tensor that is missing, mis-shaped or not of the architecture.
func Plan(files *checkpoint.Files, c model.Config, s model.Shard, o model.Options) (checkpoint.Plan, error) {
	_, plan, err := stack(files, c, s, o, checkpoint.LoadConfig{Dry: true})
	return plan, err
}

// Target loads one rank's weights and binds them to its device and group. The
// model's weights live until files is closed, its caches until b is.
func Target(files *checkpoint.Files, c model.Config, s model.Shard, o model.Options,
	b kernels.Backend, r layers.Reducer, l checkpoint.LoadConfig,
) (model.Model, checkpoint.Plan, error) {
	l.Upload = b.Upload
	weights, plan, err := stack(files, c, s, o, l)
	if err != nil {
		return nil, plan, err
	}
	m, err := weights.Attach(b, r, o)
	return m, plan, err
}

func stack(files *checkpoint.Files, c model.Config, s model.Shard, o model.Options,
	l checkpoint.LoadConfig,
) (layers.Stack, checkpoint.Plan, error) {
	if err := s.Validate(); err != nil {
		return layers.Stack{}, checkpoint.Plan{}, err
	}
	loader := files.NewLoader(l)
	w := &layers.Weights{Loader: loader, Quant: c.Quant, Shard: s}
	var out layers.Stack
	if c.Latent != nil {
		out = deepseek.Load(w, c, o)
	} else {
		out = llama.Load(w, c, o)
	}
	plan, err := loader.Finish(c.Skippable)
	return out, plan, err
}
