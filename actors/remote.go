package actors

import (
	"errors"
	"fmt"

	"github.com/asynkron/protoactor-go/actor"
	"go.uber.org/zap"
	"google.golang.org/protobuf/proto"

	"github.com/octet-run/octet/actors/link"
)

// remote is the actor.Process of every PID with a foreign address. It holds no
// state of the address, because a PID keeps its Process for ever.
type remote struct{ system *System }

// SendUserMessage puts the message into the ring to the PID's process. A failure
// is a dead letter and, beyond that, the business of whoever owns the link: it
// sees the process end, or the load and the rounds not come.
func (r remote) SendUserMessage(pid *actor.PID, envelope any) {
	_, message, sender := actor.UnwrapEnvelope(envelope)
	if err := r.system.transmit(pid, message, sender); err != nil {
		r.system.log.Warn("message not sent", zap.String("to", pid.String()), zap.Error(err))
		r.system.actors.EventStream.Publish(&actor.DeadLetterEvent{PID: pid, Message: message, Sender: sender})
	}
}

// SendSystemMessage refuses: life and death of a process are its proxy's to
// watch, by its pidfd, and not a message's to tell.
func (r remote) SendSystemMessage(pid *actor.PID, message any) {
	r.system.log.Warn("system messages do not cross processes", zap.String("to", pid.String()), zap.String("message", fmt.Sprintf("%T", message)))
}

// Stop does nothing, see SendSystemMessage.
func (r remote) Stop(pid *actor.PID) { r.SendSystemMessage(pid, &actor.Stop{}) }

func (s *System) transmit(pid *actor.PID, message any, sender *actor.PID) error {
	t := typeOf(message)
	if t == 0 {
		return fmt.Errorf("a %T has no number in link frames", message)
	}
	body, err := proto.Marshal(message.(proto.Message))
	if err != nil {
		return err
	}
	s.mu.RLock()
	end := s.links[pid.GetAddress()]
	s.mu.RUnlock()
	if end == nil {
		return fmt.Errorf("no link to %q", pid.GetAddress())
	}
	return end.Send(link.Frame{Type: t, Target: pid.GetId(), Sender: sender.GetId(), Body: body})
}

// attach makes end the way to address.
func (s *System) attach(address string, end *link.End) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.links[address] = end
}

// detach takes the way to address away, if it still is end.
func (s *System) detach(address string, end *link.End) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.links[address] == end {
		delete(s.links, address)
	}
}

// deliver hands the frames of a link to local actors until the link ends. It
// returns nil when it was closed here.
func (s *System) deliver(address string, end *link.End) error {
	for {
		f, err := end.Receive()
		if errors.Is(err, link.ErrClosed) {
			return nil
		}
		if err != nil {
			return err
		}
		message := newMessage(f.Type)
		if message == nil {
			// Another version's message: not ours to die of.
			s.log.Warn("message of unknown type dropped", zap.Uint16("type", f.Type), zap.String("from", address))
			continue
		}
		if err := proto.Unmarshal(f.Body, message); err != nil {
			return fmt.Errorf("link from %s: frame %d: body: %w", address, f.Seq, err)
		}
		target := actor.NewPID(s.actors.Address(), f.Target)
		if f.Sender == "" {
			s.actors.Root.Send(target, message)
			continue
		}
		s.actors.Root.RequestWithCustomSender(target, message, actor.NewPID(address, f.Sender))
	}
}
