import { Injectable } from '@nestjs/common';
import { Database } from '@rookery/database';
import { MatrixError } from '@rookery/matrix-types';
import { batchesOf, Config, ownTurn } from '@rookery/platform';
import { type MediaKey, parseMxc } from '../records/media.js';
import { holdQuarantine } from '../records/media.query.js';
import {
  hashesOf,
  nextFilesOf,
  quarantineChangesAfter,
  type QuarantineChange,
  quarantinePosition,
  quarantineUnfetched,
  recordQuarantineChanges,
  setProtected,
  setQuarantine,
  type UserFile,
} from './quarantine.query.js';

const batchSize = 500;

/** Withholds files from everybody: they are kept, and answered with 404. */
@Injectable()
export class Quarantine {
  readonly #instance: string;

  constructor(
    private readonly config: Config,
    private readonly database: Database,
  ) {
    this.#instance = config.get('worker_name') ?? 'master';
  }

  /**
   * Withholds files and all that have the same contents; protected ones stay. Files of other servers need not be here yet.
   * @param by user id of whoever decided it
   * @returns how many files changed
   */
  async add(keys: readonly MediaKey[], by: string): Promise<number> {
    return this.#change(keys, by);
  }

  /** Gives files back, and all that have the same contents. @returns how many files changed */
  async remove(keys: readonly MediaKey[]): Promise<number> {
    return this.#change(keys, undefined);
  }

  /** Withholds everything that a user of this server has uploaded. @returns how many files changed */
  async addOfUser(userId: string, by: string): Promise<number> {
    let changed = 0;
    for (let after: UserFile | undefined = { createdTs: 0, mediaId: '' }; after !== undefined;) {
      const files: UserFile[] = await nextFilesOf(this.database, userId, after, batchSize);
      changed += await this.#change(
        files.map(({ mediaId }) => ({ origin: undefined, mediaId })),
        by,
      );
      after = files.at(-1);
      await ownTurn();
    }
    return changed;
  }

  /**
   * Withholds files by their `mxc:` URIs, or gives them back; what is no such URI is passed over.
   * @param by `undefined` gives them back
   * @returns how many files changed
   */
  async changeByUri(uris: readonly string[], by: string | undefined): Promise<number> {
    const keys = uris.map((uri) => parseMxc(uri, this.config.serverName)).filter((key) => key !== undefined);
    return this.#change(keys, by);
  }

  /**
   * Protects a file of ours from being withheld, or no longer. One that is withheld stays so.
   * @throws MatrixError 404 `M_NOT_FOUND`
   */
  async protect(mediaId: string, isProtected: boolean): Promise<void> {
    const found = await this.database.write((tx) => setProtected(tx, mediaId, isProtected), {
      name: 'protect_media',
      anyProcess: true,
    });
    if (!found) throw MatrixError.noSuchMedia();
  }

  /** Changes after a position, oldest first. */
  changesAfter(streamId: number, limit: number): Promise<QuarantineChange[]> {
    return quarantineChangesAfter(this.database, streamId, limit);
  }

  /** Position of the newest change; 0 before the first. */
  position(): Promise<number> {
    return quarantinePosition(this.database);
  }

  async #change(keys: readonly MediaKey[], by: string | undefined): Promise<number> {
    let changed = 0;
    for (const [index, batch] of batchesOf(keys, batchSize).entries()) {
      if (index > 0) await ownTurn();
      changed += await this.database.write(
        async (tx) => {
          await holdQuarantine(tx, 'to change');
          const hashes = await hashesOf(tx, batch);
          const touched = await setQuarantine(tx, batch, hashes, by);
          if (by !== undefined) touched.push(...(await quarantineUnfetched(tx, batch, by)));
          await recordQuarantineChanges(tx, this.#instance, touched, by !== undefined);
          return touched.length;
        },
        { name: 'quarantine_media', anyProcess: true },
      );
    }
    return changed;
  }
}
