package actors

import (
	"context"
	"fmt"

	"github.com/asynkron/protoactor-go/actor"

	octetv1 "github.com/octet-run/octet/proto/octet/v1"
)

// Probe asks every rank process for its own account of itself, which it gives
// while its engine works. The answers are by rank; one that did not come before
// ctx was done is nil, and the error says so.
func (g *Group) Probe(ctx context.Context) ([]*octetv1.Health, error) {
	answers := make(chan *octetv1.Health, g.config.Ranks)
	asker := g.system.actors.Root.Spawn(g.system.props(func(c actor.Context) {
		switch m := c.Message().(type) {
		case *actor.Started:
			for r := range g.config.Ranks {
				c.Request(actor.NewPID(rankAddress(r), healthActor), &octetv1.Probe{Nonce: uint64(r)})
			}
		case *octetv1.Health:
			select {
			case answers <- m:
			default: // more answers than questions
			}
		}
	}))
	defer g.system.stop(asker, stopLimit)
	health := make([]*octetv1.Health, g.config.Ranks)
	for got := 0; got < len(health); {
		select {
		case m := <-answers:
			if r := m.GetNonce(); r < uint64(len(health)) && health[r] == nil {
				health[r] = m
				got++
			}
		case <-ctx.Done():
			return health, fmt.Errorf("%d of %d ranks told of their health: %w", got, len(health), context.Cause(ctx))
		}
	}
	return health, nil
}
