package actors

import (
	"google.golang.org/protobuf/proto"

	octetv1 "github.com/octet-run/octet/proto/octet/v1"
)

// The numbers of the messages in link frames. They are fixed: a number is never
// used for another message.
const (
	typeLoad uint16 = 1 + iota
	typeLoadProgress
	typeReady
	typeFailed
	typeProbe
	typeHealth
)

// typeOf is the number of a message, 0 if it does not cross links.
func typeOf(message any) uint16 {
	switch message.(type) {
	case *octetv1.Load:
		return typeLoad
	case *octetv1.LoadProgress:
		return typeLoadProgress
	case *octetv1.Ready:
		return typeReady
	case *octetv1.Failed:
		return typeFailed
	case *octetv1.Probe:
		return typeProbe
	case *octetv1.Health:
		return typeHealth
	}
	return 0
}

// newMessage is an empty message of a type, nil if there is no such type.
func newMessage(t uint16) proto.Message {
	switch t {
	case typeLoad:
		return &octetv1.Load{}
	case typeLoadProgress:
		return &octetv1.LoadProgress{}
	case typeReady:
		return &octetv1.Ready{}
	case typeFailed:
		return &octetv1.Failed{}
	case typeProbe:
		return &octetv1.Probe{}
	case typeHealth:
		return &octetv1.Health{}
	}
	return nil
}
