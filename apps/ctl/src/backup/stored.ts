import type { BackupFolder } from './backup-folder.js';
import type { MediaEntry, Stored } from './manifest.js';

/** So many pieces are packed and written at a time. */
const atATime = 4;

/** Told with the bytes that were gone over, and those that were new. */
export type OnBytes = (bytes: number, newBytes: number) => void;

/** Puts pieces into a folder of backups. @throws CommandError when they cannot be written */
export async function store(
  folder: BackupFolder,
  pieces: AsyncIterable<Uint8Array>,
  onBytes: OnBytes = () => {},
): Promise<Stored> {
  const names: string[] = [];
  const under: Promise<string>[] = [];
  let bytes = 0;
  try {
    for await (const piece of pieces) {
      if (under.length >= atATime) names.push(await (under.shift() as Promise<string>));
      bytes += piece.length;
      const adding = folder.add(piece).then(({ name, newBytes }) => {
        onBytes(piece.length, newBytes);
        return name;
      });
      // It is waited for later, in its turn.
      adding.catch(() => {});
      under.push(adding);
    }
    for (const adding of under) names.push(await adding);
  } finally {
    await Promise.allSettled(under);
  }
  return { bytes, pieces: names };
}

/** The pieces again, in their order. @throws CommandError when one is missing or damaged */
export async function* load(folder: BackupFolder, names: readonly string[]): AsyncGenerator<Uint8Array> {
  const ahead: Promise<Buffer>[] = [];
  let next = 0;
  try {
    while (next < names.length || ahead.length > 0) {
      while (next < names.length && ahead.length < atATime) {
        const reading = folder.read(names[next++] as string);
        reading.catch(() => {});
        ahead.push(reading);
      }
      yield await (ahead.shift() as Promise<Buffer>);
    }
  } finally {
    await Promise.allSettled(ahead);
  }
}

/** The whole of something small. */
export async function loadWhole(folder: BackupFolder, { pieces }: Stored): Promise<Buffer> {
  const all: Uint8Array[] = [];
  for await (const piece of load(folder, pieces)) all.push(piece);
  return Buffer.concat(all);
}

/** Lines of an index, in the form in which it is stored: a tuple each. */
export const lineOf = ({ path, sizeBytes, modifiedMs, pieces }: MediaEntry): string =>
  `${JSON.stringify([path, sizeBytes, modifiedMs, ...pieces])}\n`;

/** The files of a backup, in the order of their paths. */
export async function* mediaEntries(folder: BackupFolder, index: Stored): AsyncGenerator<MediaEntry> {
  let rest = '';
  const decoder = new TextDecoder();
  for await (const piece of load(folder, index.pieces)) {
    const lines = (rest + decoder.decode(piece, { stream: true })).split('\n');
    rest = lines.pop() ?? '';
    for (const line of lines) {
      const [path, sizeBytes, modifiedMs, ...pieces] = JSON.parse(line) as [string, number, number, ...string[]];
      yield { path, sizeBytes, modifiedMs, pieces };
    }
  }
}
