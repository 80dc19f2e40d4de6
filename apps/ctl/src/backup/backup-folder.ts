import { existsSync } from 'node:fs';
import { chmod, mkdir, open, readdir, readFile, rename, rm, stat } from 'node:fs/promises';
import { join, resolve } from 'node:path';
import { fileProblem } from '@rookery/platform';
import { claimDatabase, DatabaseError } from '@rookery/database';
import { CommandError } from '../command-error.js';
import { newKey, plainSealing, type Sealing, secretSealing, unwrapKey, type WrappedKey } from './sealing.js';
import type { Manifest } from './manifest.js';

interface Header {
  readonly format: number;
  readonly secret?: WrappedKey;
}

const format = 1;
const headerName = 'rookery-backup.json';
const objectsName = 'objects';
const backupsName = 'backups';
const objectName = /^[0-9a-f]{64}$/;
const backupId = /^\d{8}T\d{6}Z(?:-\d+)?$/;
const ownerOnly = 0o700;

/** When a backup of that name was made, to the second, in milliseconds. */
export const madeAtMsOf = (id: string): number =>
  Date.parse(id.replace(/^(\d{4})(\d\d)(\d\d)T(\d\d)(\d\d)(\d\d)Z.*$/, '$1-$2-$3T$4:$5:$6Z'));

/**
 * A folder with backups. What they consist of lies under names that follow from the contents, so that what several of them have
 * in common is there once, and what an interrupted backup has written already is found again by the next one.
 */
export class BackupFolder {
  /** Folders of objects to which something was added, whose names must reach the disk as well. */
  readonly #touched = new Set<string>();

  private constructor(
    readonly path: string,
    private readonly sealing: Sealing,
    /** Whether a password is needed to read it. */
    readonly isSecret: boolean,
  ) {}

  /** Whether a folder has backups. */
  static exists(path: string): boolean {
    return existsSync(join(path, headerName));
  }

  /**
   * Makes a folder for backups, which must be missing or empty.
   * @param password hides what is in it from whoever does not know it
   * @throws CommandError
   */
  static async create(path: string, password: string | undefined): Promise<BackupFolder> {
    const folder = resolve(path);
    const secret = password === undefined ? undefined : await newKey(password);
    try {
      await mkdir(folder, { recursive: true, mode: ownerOnly });
      const there = await readdir(folder);
      if (there.some((name) => name !== 'lost+found'))
        throw new CommandError(`${path} is not empty, and has no backups: give a folder of its own`);
      for (const name of [objectsName, backupsName]) await mkdir(join(folder, name), { mode: ownerOnly });
      const header: Header = { format, ...(secret !== undefined && { secret: secret.wrapped }) };
      await writeWhole(folder, headerName, Buffer.from(`${JSON.stringify(header, null, 2)}\n`));
      await syncFolder(folder);
    } catch (error) {
      throw failed(error, `${path} cannot be written`);
    }
    return new BackupFolder(
      folder,
      secret === undefined ? plainSealing : secretSealing(secret.key),
      secret !== undefined,
    );
  }

  /**
   * @param password asked for where one is needed
   * @throws CommandError
   */
  static async open(path: string, password: () => Promise<string>): Promise<BackupFolder> {
    const folder = resolve(path);
    let header: Header;
    try {
      header = JSON.parse(await readFile(join(folder, headerName), 'utf8')) as Header;
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === 'ENOENT')
        throw new CommandError(`There are no backups in ${path}: it has no ${headerName}`);
      throw failed(error, `${path}/${headerName} cannot be read`);
    }
    if (header.format !== format)
      throw new CommandError(`The backups in ${path} have format ${header.format}; this version knows ${format}`);
    const { secret } = header;
    const sealing = secret === undefined ? plainSealing : secretSealing(await unwrapKey(secret, await password()));
    return new BackupFolder(folder, sealing, secret !== undefined);
  }

  /** Calls a function while nobody else changes the folder. @throws CommandError when somebody else does */
  async alone<T>(fn: () => Promise<T>): Promise<T> {
    const claim = await claimDatabase({ name: 'sqlite3', path: join(this.path, headerName) }, { waitMs: 0 }).catch(
      (error: unknown) => {
        throw error instanceof DatabaseError
          ? new CommandError(`Another command is at work on the backups in ${this.path}, or they cannot be written`)
          : error;
      },
    );
    try {
      return await fn();
    } finally {
      await claim.release();
    }
  }

  /** Adds bytes, unless they are there. @returns their name, and how much room they newly take */
  async add(data: Uint8Array): Promise<{ readonly name: string; readonly newBytes: number }> {
    const name = this.sealing.nameOf(data);
    const folder = this.#folderOf(name);
    if (await sizeOf(join(folder, name))) return { name, newBytes: 0 };
    const box = await this.sealing.seal(name, data);
    try {
      await mkdir(folder, { recursive: true, mode: ownerOnly });
      await writeWhole(folder, name, box);
    } catch (error) {
      throw failed(error, `The backup cannot be written to ${this.path}`);
    }
    this.#touched.add(folder);
    return { name, newBytes: box.length };
  }

  /** @throws CommandError when it is missing or damaged */
  async read(name: string): Promise<Buffer> {
    const box = await this.#readFile(join(this.#folderOf(name), name), name);
    const data = await this.sealing.open(name, box);
    if (this.sealing.nameOf(data) !== name) throw new CommandError(`${name} is damaged`);
    return data;
  }

  /** Names and sizes of everything that backups consist of; what interrupted ones left half written is removed. */
  async *objects(): AsyncGenerator<{ readonly name: string; readonly sizeBytes: number }> {
    for (const prefix of (await readdir(join(this.path, objectsName))).sort()) {
      const folder = join(this.path, objectsName, prefix);
      for (const name of (await readdir(folder)).sort()) {
        if (objectName.test(name)) yield { name, sizeBytes: (await sizeOf(join(folder, name))) ?? 0 };
        else await rm(join(folder, name), { force: true });
      }
    }
  }

  /** Whether something is there, without looking into it. */
  async has(name: string): Promise<boolean> {
    return (await sizeOf(join(this.#folderOf(name), name))) !== undefined;
  }

  async removeObject(name: string): Promise<void> {
    await rm(join(this.#folderOf(name), name), { force: true });
  }

  /** The backups, oldest first. */
  async backups(): Promise<string[]> {
    return (await readdir(join(this.path, backupsName))).filter((name) => backupId.test(name)).sort();
  }

  /** Where a backup lies: without that file it is none, and what it consists of goes with the next `prune`. */
  pathOf(id: string): string {
    return join(this.path, backupsName, id);
  }

  /** @throws CommandError when there is none of that name, or it is damaged */
  async manifest(id: string): Promise<Manifest> {
    if (!backupId.test(id)) throw new CommandError(`${id} is no name of a backup`);
    const box = await this.#readFile(this.pathOf(id), `the backup ${id}`);
    return JSON.parse((await this.sealing.open(id, box)).toString()) as Manifest;
  }

  /** From now on there is a backup, with everything that it consists of. */
  async finish(manifest: Manifest): Promise<void> {
    const box = await this.sealing.seal(manifest.id, Buffer.from(JSON.stringify(manifest)));
    try {
      for (const folder of [...this.#touched, join(this.path, objectsName)]) await syncFolder(folder);
      this.#touched.clear();
      await writeWhole(join(this.path, backupsName), manifest.id, box);
      await syncFolder(join(this.path, backupsName));
    } catch (error) {
      throw failed(error, `The backup cannot be written to ${this.path}`);
    }
  }

  async removeBackup(id: string): Promise<void> {
    await rm(this.pathOf(id), { force: true });
    await syncFolder(join(this.path, backupsName));
  }

  #folderOf(name: string): string {
    if (!objectName.test(name)) throw new CommandError(`${name} is no name of a part of a backup`);
    return join(this.path, objectsName, name.slice(0, 2));
  }

  async #readFile(path: string, what: string): Promise<Buffer> {
    try {
      return await readFile(path);
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === 'ENOENT')
        throw new CommandError(`${what} is missing in ${this.path}`);
      throw failed(error, `${path} cannot be read`);
    }
  }
}

async function sizeOf(path: string): Promise<number | undefined> {
  return (await stat(path).catch(() => undefined))?.size;
}

/** A file is there as a whole, on the disk, or not at all. */
async function writeWhole(folder: string, name: string, data: Uint8Array): Promise<void> {
  const temporary = join(folder, `.${name}.${process.pid}.tmp`);
  try {
    const file = await open(temporary, 'w', 0o600);
    try {
      await file.writeFile(data);
      await file.datasync();
    } finally {
      await file.close();
    }
    await chmod(temporary, 0o600);
    await rename(temporary, join(folder, name));
  } catch (error) {
    await rm(temporary, { force: true });
    throw error;
  }
}

async function syncFolder(path: string): Promise<void> {
  const folder = await open(path, 'r');
  // Some file systems of networks do not know that.
  await folder.sync().catch(() => {});
  await folder.close();
}

function failed(error: unknown, what: string): Error {
  if (error instanceof CommandError) return error;
  const { code } = error as NodeJS.ErrnoException;
  if (code === undefined) return error as Error;
  return new CommandError(`${what}: ${fileProblem(error)}`);
}
