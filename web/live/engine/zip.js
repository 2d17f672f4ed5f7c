// Reading a zip archive whose files are stored as they are, not compressed.

const END_OF_DIRECTORY = 0x06054b50;
const LOCAL_HEADER = 30;

/** Return a Map from the name of each file to its bytes, which are views of the archive. */
export function filesOfZip(buffer) {
  const view = new DataView(buffer);
  const decoder = new TextDecoder();
  const files = new Map();
  const end = endOfDirectory(view);
  let entry = view.getUint32(end + 16, true);
  for (let count = view.getUint16(end + 10, true); count > 0; count -= 1) {
    const [size, nameLength, extraLength, commentLength, header] = [
      view.getUint32(entry + 24, true),
      view.getUint16(entry + 28, true),
      view.getUint16(entry + 30, true),
      view.getUint16(entry + 32, true),
      view.getUint32(entry + 42, true),
    ];
    if (view.getUint16(entry + 10, true) !== 0) throw new Error("a file in the archive is compressed");
    const name = decoder.decode(new Uint8Array(buffer, entry + 46, nameLength));
    const start =
      header + LOCAL_HEADER + view.getUint16(header + 26, true) + view.getUint16(header + 28, true);
    files.set(name, new Uint8Array(buffer, start, size));
    entry += 46 + nameLength + extraLength + commentLength;
  }
  return files;
}

function endOfDirectory(view) {
  for (let position = view.byteLength - 22; position >= 0; position -= 1) {
    if (view.getUint32(position, true) === END_OF_DIRECTORY) return position;
  }
  throw new Error("not a zip archive");
}
