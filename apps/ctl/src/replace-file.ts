import {
  accessSync,
  chmodSync,
  chownSync,
  constants,
  realpathSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { fileProblem } from '@rookery/platform';
import { CommandError } from './command-error.js';

/** A file beside the other cannot take its place; the other may be written all the same. */
const onlyInPlace = new Set(['EACCES', 'EPERM', 'EBUSY']);

/** @throws CommandError when a file may not be written, before anything depends on it */
export function assertWritable(path: string): void {
  try {
    accessSync(path, constants.W_OK);
  } catch (error) {
    throw new CommandError(`${path} cannot be written: ${fileProblem(error)}`);
  }
}

/**
 * Replaces a file as a whole, with its owner and permissions, so that nobody ever reads half of it. Where that cannot be, as
 * for a file that is mounted alone, it is written in place.
 * @throws CommandError when it cannot be written
 */
export function replaceFile(path: string, text: string): void {
  try {
    // What a link leads to, or the link would become a file.
    const file = realpathSync(path);
    if (!swap(file, text)) writeFileSync(file, text);
  } catch (error) {
    throw new CommandError(`${path} cannot be written: ${fileProblem(error)}`);
  }
}

function swap(file: string, text: string): boolean {
  const temporary = `${file}.${process.pid}.tmp`;
  const { mode, uid, gid } = statSync(file);
  try {
    writeFileSync(temporary, text, { mode, flag: 'wx' });
    chmodSync(temporary, mode);
    chownSync(temporary, uid, gid);
    renameSync(temporary, file);
    return true;
  } catch (error) {
    rmSync(temporary, { force: true });
    if (onlyInPlace.has((error as NodeJS.ErrnoException).code ?? '')) return false;
    throw error;
  }
}
