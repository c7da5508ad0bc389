package rank

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/octet-run/octet/collectives"
)

// Config is what a rank is told when it starts. It crosses the process boundary
// as JSON.
type Config struct {
	Model    string `json:"model"`              // folder of the target; empty: the embedded pair
	Draft    string `json:"draft,omitempty"`    // folder of the drafter; empty: none
	Captures []int  `json:"captures,omitempty"` // overrides the target layers a drafter reads

	// DraftOnAll runs the drafter on every rank alike instead of on rank 0, which
	// then sends its trees to the others.
	DraftOnAll bool `json:"draft_on_all,omitempty"`
	// WholeExperts gives each rank whole experts instead of slices of all.
	WholeExperts bool `json:"whole_experts,omitempty"`

	// LoadLimit bounds what loading leaves in the page cache beside the weights that
	// are used in place, in bytes; 0: no bound.
	LoadLimit int64 `json:"load_limit,omitempty"`

	// Backend is what the rank computes on: cpu (or empty) or cuda. Devices are then
	// the PCI addresses of the ranks' GPUs.
	Backend string   `json:"backend,omitempty"`
	Devices []string `json:"devices,omitempty"`
	// RequireFast refuses a slower path between GPUs than the best.
	RequireFast bool `json:"require_fast,omitempty"`

	// ShardBytes is what each rank loads, for the sake of its progress; nil: unknown.
	ShardBytes []int64 `json:"shard_bytes,omitempty"`

	Threads   int    `json:"threads"`       // of the CPU backend
	ISA       string `json:"isa,omitempty"` // instruction set of the group; empty: the best here
	Dedicated bool   `json:"dedicated"`     // the rank has its processors to itself

	Slots   int `json:"slots"`   // sequences at a time
	Blocks  int `json:"blocks"`  // pages of KV cache
	Context int `json:"context"` // positions of the longest sequence
	MaxRows int `json:"max_rows"`

	// Plan says which all-reduce algorithm runs at which size.
	Plan              collectives.Plan `json:"plan"`
	CollectiveTimeout time.Duration    `json:"collective_timeout"`
}

// ParseConfig reads what Config.Encode wrote.
func ParseConfig(data []byte) (Config, error) {
	var c Config
	if err := json.Unmarshal(data, &c); err != nil {
		return Config{}, fmt.Errorf("rank configuration: %w", err)
	}
	return c, c.validate()
}

// Encode is the configuration as it travels to the rank.
func (c Config) Encode() ([]byte, error) { return json.Marshal(c) }

func (c *Config) validate() error {
	for _, field := range []struct {
		name  string
		value int
	}{
		{"slots", c.Slots},
		{"blocks", c.Blocks},
		{"context", c.Context},
		{"max_rows", c.MaxRows},
	} {
		if field.value <= 0 {
			return fmt.Errorf("rank configuration: %s must be positive, got %d", field.name, field.value)
		}
	}
	switch c.Backend {
	case "", CPU:
	case CUDA:
		if len(c.Devices) == 0 {
			return errors.New("rank configuration: backend cuda without devices")
		}
	default:
		return fmt.Errorf("rank configuration: no backend is called %q", c.Backend)
	}
	return nil
}

// The backends.
const (
	CPU  = "cpu"
	CUDA = "cuda"
)
