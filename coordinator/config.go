package coordinator

import (
	"fmt"
	"time"

	"github.com/octet-run/octet/faults"
	"github.com/octet-run/octet/model/tokenizer"
	"github.com/octet-run/octet/speculation"
)

// Config is what a coordinator serves and within which limits.
type Config struct {
	Model     string               // the name clients see
	Vocab     int                  // tokens that the target scores
	Context   int                  // positions that the target can run
	Tokenizer *tokenizer.Tokenizer // nil: token ids only
	EOS       []int32              // tokens that end a generation

	Batch       int // sequences that run at once; 0: 8
	Queue       int // requests that wait beyond those; 0: 256
	Blocks      int // KV blocks of the group
	BlockTokens int // positions in a block; 0: 16
	ChunkRows   int // prefill rows in a round; 0: 256
	VerifyRows  int // verify rows in a round; 0: 256

	Drafting Drafting // for requests that do not say
	// Eagle3 says that the group has a drafter network.
	Eagle3 bool

	Replays int // how often a request may start over after the group broke; 0: 3
	// StallAfter is how long one round may take before Stats says that there is no
	// progress; 0: 10 seconds.
	StallAfter time.Duration
	// Log keeps what requests need to go on; nil: in memory.
	Log TokenLog
	// Observer hears of rounds and finished requests; may be nil.
	Observer Observer
	// Faults strike at the coordinator's points; nil: none.
	Faults *faults.Injector
	// Now is the clock; nil: time.Now.
	Now func() time.Time

	chat    *tokenizer.ChatTemplate
	chatErr error // why there is none
}

// Mode says who drafts for a request.
type Mode uint8

// The modes. ModeDefault is the server's choice in a request, ModeAuto in a Config.
const (
	ModeDefault Mode = iota
	ModeAuto         // whatever is fastest, none included
	ModeOff
	ModeEagle3
	ModeNGram
)

// Drafting is how a request is drafted. A zero Shape is the server's choice; in a
// Config it is topk=4, steps=5, tokens=16.
type Drafting struct {
	Mode  Mode
	Shape speculation.Shape
}

// ModeNames are the modes as flags and requests spell them.
var modeNames = [...]string{ModeDefault: "default", ModeAuto: "auto", ModeOff: "off", ModeEagle3: "eagle3", ModeNGram: "ngram"}

func (m Mode) String() string { return modeNames[m] }

// ParseMode reads a mode as flags and requests spell it.
func ParseMode(name string) (Mode, error) {
	for mode, known := range modeNames {
		if name == known && Mode(mode) != ModeDefault {
			return Mode(mode), nil
		}
	}
	return 0, fmt.Errorf("unknown speculation mode %q: use auto, eagle3, ngram or off", name)
}

func (c *Config) setDefaults() {
	defaultTo := func(field *int, value int) {
		if *field == 0 {
			*field = value
		}
	}
	defaultTo(&c.Batch, 8)
	defaultTo(&c.Queue, 256)
	defaultTo(&c.BlockTokens, 16)
	defaultTo(&c.ChunkRows, 256)
	defaultTo(&c.VerifyRows, 256)
	defaultTo(&c.Replays, 3)
	if c.StallAfter == 0 {
		c.StallAfter = 10 * time.Second
	}
	if c.Drafting.Mode == ModeDefault {
		c.Drafting.Mode = ModeAuto
	}
	if c.Drafting.Shape.IsZero() {
		c.Drafting.Shape = speculation.Shape{TopK: 4, Steps: 5, Nodes: 16}
	}
	if c.Log == nil {
		c.Log = NewMemoryLog(256)
	}
	if c.Observer == nil {
		c.Observer = noObserver{}
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	c.loadChat()
}

func (c *Config) validate() error {
	for _, field := range []struct {
		name  string
		value int
	}{
		{"Vocab", c.Vocab},
		{"Context", c.Context},
		{"Blocks", c.Blocks},
		{"BlockTokens", c.BlockTokens},
		{"Batch", c.Batch},
		{"Queue", c.Queue},
		{"ChunkRows", c.ChunkRows},
		{"VerifyRows", c.VerifyRows},
		{"Replays", c.Replays},
	} {
		if field.value <= 0 {
			return fmt.Errorf("coordinator config: %s must be positive, got %d", field.name, field.value)
		}
	}
	if c.VerifyRows < c.Batch {
		return fmt.Errorf("coordinator config: VerifyRows %d cannot hold one row for each of %d sequences", c.VerifyRows, c.Batch)
	}
	if err := c.Drafting.Shape.Validate(); err != nil {
		return fmt.Errorf("coordinator config: %w", err)
	}
	if c.Drafting.Mode == ModeEagle3 && !c.Eagle3 {
		return fmt.Errorf("coordinator config: speculation eagle3 needs a drafter; give one or choose auto, ngram or off")
	}
	return nil
}
