package boxes

import (
	"strings"
	"testing"
)

func TestEveryBoxReadsAndSaysItsSources(t *testing.T) {
	for _, name := range Names() {
		box, err := Load(name)
		if err != nil {
			t.Errorf("box %s: %v", name, err)
			continue
		}
		if box.Name != name || len(box.Sources) == 0 || box.Fabric == nil {
			t.Errorf("box %s: name %q, %d sources, fabric %v", name, box.Name, len(box.Sources), box.Fabric)
		}
	}
}

func TestAnUnknownBoxNamesThoseThereAre(t *testing.T) {
	for _, name := range []string{"dgx", "", "../boxes", "this.json"} {
		if _, err := Load(name); err == nil || !strings.Contains(err.Error(), "rtx-pro-6000x8-broadcom") {
			t.Errorf("box %q: error %v", name, err)
		}
	}
}
