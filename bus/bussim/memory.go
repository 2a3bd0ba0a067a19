package bussim

import "unsafe"

// request is the argument of an ioctl: a number, or where a structure lies.
type request struct {
	value uintptr
	arg   unsafe.Pointer
}

// Set runs a request whose argument is a number.
func (o *opened) Set(req uint32, value uintptr) error {
	_, err := o.run(req, request{value: value})
	return err
}

// Call runs a request whose argument is a structure.
func (o *opened) Call(req uint32, arg unsafe.Pointer) (int, error) {
	return o.run(req, request{arg: arg})
}

// at is the memory of the caller that a 64-bit address names, as the kernel's
// copy_from_user finds it. The caller has pinned it.
func at(address uint64, n int) []byte {
	if address == 0 || n == 0 {
		return nil
	}
	return unsafe.Slice(*(**byte)(unsafe.Pointer(&address)), n)
}
