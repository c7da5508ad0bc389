package telemetry

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// asReporter makes the test binary a reporter that behaves as the value says.
const asReporter = "OCTET_TEST_TELEMETRY"

func TestMain(m *testing.M) {
	line := `{"gpus":[{"pci":"0000:41:00.0","temperature_c":%d,"xids":1,"last_xid":79}]}` + "\n"
	switch os.Getenv(asReporter) {
	case "":
		goleak.VerifyTestMain(m)
	case "steady":
		for i := 40; ; i++ {
			fmt.Printf(line, i)
			time.Sleep(10 * time.Millisecond)
		}
	case "hangs":
		fmt.Printf(line, 50)
		time.Sleep(time.Hour)
	case "refuses":
		fmt.Println(`{"error":"no driver is loaded"}`)
		os.Exit(1)
	case "crashes":
		fmt.Println("Segmentation fault")
		os.Exit(139)
	}
}

func watch(t *testing.T, behaviour string, limit time.Duration) *Watch {
	t.Helper()
	w, err := NewWatch(Config{Limit: limit, Command: func(ctx context.Context) *exec.Cmd {
		cmd := exec.CommandContext(ctx, os.Args[0])
		cmd.Env = append(os.Environ(), asReporter+"="+behaviour)
		return cmd
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Close)
	return w
}

// until waits for what a machine however slow must show in the end.
func until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(2 * time.Minute); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited in vain for %s", what)
		}
	}
}

func TestAWatchHasWhatTheReporterLastSaid(t *testing.T) {
	w := watch(t, "steady", time.Minute)
	until(t, "a later sample", func() bool {
		gpus, heard, err := w.Latest()
		return err == nil && len(gpus) == 1 && gpus[0].TemperatureC > 42 && gpus[0].LastXID == 79 && !heard.IsZero()
	})
}

func TestAReporterThatHangsIsKilledAndStartedAgain(t *testing.T) {
	w := watch(t, "hangs", 500*time.Millisecond)
	until(t, "two kills", func() bool { return w.Killed() >= 2 })
	if gpus, _, _ := w.Latest(); len(gpus) != 1 && gpus != nil {
		t.Errorf("the last sample is %v", gpus)
	}
}

func TestWhyThereIsNoTelemetryIsTold(t *testing.T) {
	for behaviour, want := range map[string]string{"refuses": "no driver is loaded", "crashes": `printed "Segmentation fault"`} {
		w := watch(t, behaviour, time.Minute)
		until(t, "the reason", func() bool {
			_, _, err := w.Latest()
			return err != nil && strings.Contains(err.Error(), want)
		})
	}
}

func TestAWatchNeedsACommand(t *testing.T) {
	if _, err := NewWatch(Config{}); err == nil {
		t.Error("a watch without a command was made")
	}
}
