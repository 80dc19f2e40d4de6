import { CommandError } from '../command-error.js';
import { type BackupFolder, madeAtMsOf } from './backup-folder.js';
import { piecesOf } from './manifest.js';
import { keptOf, type Retention } from './retention.js';
import { mediaEntries } from './stored.js';

/** What is wrong with a backup. */
export interface Damage {
  readonly id: string;
  readonly reason: string;
}

/**
 * Reads everything that backups consist of, and compares it with its name.
 * @param quick only whether it is there
 * @returns what is wrong, and how much was looked at
 */
export async function verifyBackups(
  folder: BackupFolder,
  ids: readonly string[],
  quick: boolean,
  onProgress: (pieces: number) => void,
): Promise<{ readonly damages: readonly Damage[]; readonly pieces: number }> {
  const damages: Damage[] = [];
  // What backups have in common is looked at once.
  const verdicts = new Map<string, string | undefined>();
  for (const id of ids) {
    const look = async (name: string): Promise<void> => {
      let verdict = verdicts.get(name);
      if (!verdicts.has(name)) {
        verdict = await verdictOn(folder, name, quick);
        verdicts.set(name, verdict);
        onProgress(verdicts.size);
      }
      if (verdict !== undefined) damages.push({ id, reason: verdict });
    };
    try {
      for await (const name of allPiecesOf(folder, id)) await look(name);
    } catch (error) {
      if (!(error instanceof CommandError)) throw error;
      damages.push({ id, reason: error.message });
    }
  }
  return { damages, pieces: verdicts.size };
}

/** What a backup consists of, media included. @throws CommandError when that cannot be read */
async function* allPiecesOf(folder: BackupFolder, id: string): AsyncGenerator<string> {
  const manifest = await folder.manifest(id);
  yield* piecesOf(manifest);
  for await (const { pieces } of mediaEntries(folder, manifest.media)) yield* pieces;
}

async function verdictOn(folder: BackupFolder, name: string, quick: boolean): Promise<string | undefined> {
  if (quick) return (await folder.has(name)) ? undefined : `${name} is missing`;
  try {
    await folder.read(name);
    return undefined;
  } catch (error) {
    if (error instanceof CommandError) return error.message;
    throw error;
  }
}

/**
 * Removes backups that are not to be kept, damaged ones as well, and what no other one consists of.
 * @throws CommandError when a backup that stays cannot be read: what it consists of is not known then, and nothing is removed
 */
export async function pruneBackups(
  folder: BackupFolder,
  retention: Retention,
): Promise<{ readonly removed: readonly string[]; readonly freedBytes: number }> {
  const ids = await folder.backups();
  const kept = keptOf(
    ids.map((id) => ({ id, madeAtMs: madeAtMsOf(id) })),
    retention,
  );
  const removed = ids.filter((id) => !kept.has(id));
  const needed = new Set<string>();
  for (const id of kept) {
    try {
      for await (const name of allPiecesOf(folder, id)) needed.add(name);
    } catch (error) {
      if (!(error instanceof CommandError)) throw error;
      throw new CommandError(
        `Nothing was removed: what the backup ${id} consists of, which is to stay, is not known (${error.message})\nLook at the disk. To give that backup up, remove ${folder.pathOf(id)}.`,
      );
    }
  }
  // First the backups: what is left half done removes nothing that one of those left consists of.
  for (const id of removed) await folder.removeBackup(id);
  let freedBytes = 0;
  for await (const { name, sizeBytes } of folder.objects()) {
    if (needed.has(name)) continue;
    await folder.removeObject(name);
    freedBytes += sizeBytes;
  }
  return { removed, freedBytes };
}
