package collectives

import (
	"testing"

	"github.com/octet-run/octet/internal/testgroup"
)

func TestMain(m *testing.M) {
	testgroup.Main(m, map[string]testgroup.Role{
		"reduce":  reduceRole,
		"bench":   benchRole,
		"loss":    lossRole,
		"torture": tortureRole,
	})
}
