package cpu

type attend struct{}
