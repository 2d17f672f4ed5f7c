export { File, Directory, Fd, OpenFile, PreopenDirectory, WASI } from "@bjorn3/browser_wasi_shim";
