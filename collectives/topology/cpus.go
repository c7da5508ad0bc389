package topology

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// maxCPU bounds the processor numbers that are believed.
const maxCPU = 1 << 16

// CPUs is a sorted set of processor numbers. As text it is the kernel's list
// form, "0-3,8".
type CPUs []int

// ParseCPUs reads the kernel's list form.
func ParseCPUs(text string) (CPUs, error) {
	var set CPUs
	text = strings.TrimSpace(text)
	if text == "" {
		return nil, nil
	}
	for _, part := range strings.Split(text, ",") {
		first, last, isRange := strings.Cut(part, "-")
		lo, err := strconv.Atoi(first)
		hi := lo
		if err == nil && isRange {
			hi, err = strconv.Atoi(last)
		}
		if err != nil || lo < 0 || hi < lo || hi >= maxCPU {
			return nil, fmt.Errorf("%q is not a list of processors such as 0-3,8", text)
		}
		for cpu := lo; cpu <= hi; cpu++ {
			set = append(set, cpu)
		}
	}
	slices.Sort(set)
	return slices.Compact(set), nil
}

// String is the kernel's list form.
func (c CPUs) String() string {
	var b strings.Builder
	for i := 0; i < len(c); {
		j := i
		for j+1 < len(c) && c[j+1] == c[j]+1 {
			j++
		}
		if b.Len() > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strconv.Itoa(c[i]))
		if j > i {
			b.WriteString("-" + strconv.Itoa(c[j]))
		}
		i = j + 1
	}
	return b.String()
}

// MarshalJSON writes the list form.
func (c CPUs) MarshalJSON() ([]byte, error) { return json.Marshal(c.String()) }

// UnmarshalJSON reads the list form.
func (c *CPUs) UnmarshalJSON(data []byte) error {
	var text string
	if err := json.Unmarshal(data, &text); err != nil {
		return err
	}
	set, err := ParseCPUs(text)
	*c = set
	return err
}
