// Package faults is fault injection as a tool: a small script language, the
// named points in the runtime where a fault can strike, and the injector that
// decides at each point whether one does.
//
// The package is a leaf: everything may import it and it imports nothing of the
// project. A nil *Injector is the normal state of a process, and Point on it is
// one branch. Process faults (kill, stop, cont) are carried out from outside by
// whoever supervises the ranks; all others strike at a Point inside a process.
// Both come from the same Script, whose triggers are rounds, operations, hits of
// a point and times, never chance: the same script does the same thing again.
package faults
