import { CommandError } from '../command-error.js';
import type { BackupFolder } from './backup-folder.js';
import { type Manifest, piecesOf } from './manifest.js';
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
      const manifest = await folder.manifest(id);
      for (const name of piecesOf(manifest)) await look(name);
      for await (const { pieces } of mediaEntries(folder, manifest.media)) for (const name of pieces) await look(name);
    } catch (error) {
      if (!(error instanceof CommandError)) throw error;
      damages.push({ id, reason: error.message });
    }
  }
  return { damages, pieces: verdicts.size };
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
 * Removes backups that are not to be kept, and what no other one consists of.
 * @throws CommandError when a backup that stays cannot be read: what it consists of is not known then
 */
export async function pruneBackups(
  folder: BackupFolder,
  retention: Retention,
): Promise<{ readonly removed: readonly string[]; readonly freedBytes: number }> {
  const manifests: Manifest[] = [];
  for (const id of await folder.backups()) manifests.push(await folder.manifest(id));
  const kept = keptOf(manifests, retention);
  const removed = manifests.filter(({ id }) => !kept.has(id)).map(({ id }) => id);
  const needed = new Set<string>();
  for (const manifest of manifests.filter(({ id }) => kept.has(id))) {
    for (const name of piecesOf(manifest)) needed.add(name);
    for await (const { pieces } of mediaEntries(folder, manifest.media)) for (const name of pieces) needed.add(name);
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
