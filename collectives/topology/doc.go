// Package topology knows what a box is made of: CPUs and NUMA nodes, the PCIe
// tree down to each GPU with the rate of every link now and at best, NVLink,
// IOMMU and access control. It discovers the machine it runs on from sysfs (and
// from the NVIDIA driver where there is one), reads and writes boxes as JSON,
// says what lies between two GPUs, binds ranks to CPUs and NUMA nodes, and
// checks from /proc that a binding took.
//
// The package only looks. It measures nothing and changes nothing; whether a
// path works and how fast it is, is the verdict probe's business.
package topology
