import { Injectable } from '@nestjs/common';
import { Database, type Db, type Tx } from '@rookery/database';
import { MatrixError } from '@rookery/matrix-types';
import { batchesOf, ownTurn } from '@rookery/platform';
import { holdAccount } from '@rookery/users';
import { isName, limits, objectText } from '../common/limits.js';
import {
  type BackedUpSession,
  type BackupVersion,
  currentVersion,
  deleteSomeSessions,
  deleteVersion,
  existingSessions,
  findSession,
  findVersion,
  insertVersion,
  lockVersion,
  noteChange,
  selectNextSessions,
  type SessionSelector,
  setAuthData,
  writeSessions,
} from './backup.query.js';
import { isBetter } from './session-rules.js';

/** Sessions that are read, and deleted, at once: a user may have kept keys for years, and a session's data may be long. */
const sessionsRead = 50;
const sessionsDeleted = 1_000;
/** Sessions that are stored before others get a turn. */
const sessionsStored = 500;
/** What those that are read at once hold at most, bytes. */
export const pageBytes = sessionsRead * limits.backupSessionBytes;

/** What a client compares to see whether another one changed the backup. */
export interface BackupState {
  readonly etag: string;
  readonly count: number;
}

const stateOf = ({ etag, count }: BackupVersion): BackupState => ({ etag: String(etag), count });
const sessionKey = ({ roomId, sessionId }: { roomId: string; sessionId: string }): string => `${roomId}\n${sessionId}`;
const unknownVersion = (): MatrixError => MatrixError.notFound('There is no such backup');

/** Room keys that users keep at the server, encrypted. @spec client-server-api#server-side-key-backups */
@Injectable()
export class KeyBackupService {
  constructor(private readonly database: Database) {}

  /**
   * Begins a backup, which is the current one from then on. @returns its version
   * @throws MatrixError 400 `M_BAD_JSON`, `M_INVALID_PARAM`, 413 `M_TOO_LARGE`, 403 `M_USER_DEACTIVATED`
   */
  async create(userId: string, algorithm: string, authData: unknown): Promise<string> {
    if (!isName(algorithm)) throw MatrixError.invalidParam('Not a valid algorithm');
    const text = objectText(authData, "'auth_data'", limits.keyBytes);
    for (;;) {
      const version = await this.database.write(
        async (tx) => {
          await holdAccount(tx, userId);
          return insertVersion(tx, userId, algorithm, text, limits.backupVersions);
        },
        { name: 'key_backup_create', anyProcess: true },
      );
      if (version === 'full') throw MatrixError.tooLarge('There are too many backups');
      // Whoever took the number has got on, so this ends.
      if (version !== 'taken') return String(version);
    }
  }

  /** The current backup, or one by its version. @throws MatrixError 404 `M_NOT_FOUND` */
  async find(userId: string, version: string | undefined): Promise<BackupVersion> {
    if (version === undefined) {
      const current = await currentVersion(this.database, userId);
      if (current === undefined) throw MatrixError.notFound('There is no backup');
      return current;
    }
    return this.#existing(userId, version);
  }

  /** @throws MatrixError 400 `M_INVALID_PARAM` when the algorithm is another one, 404 `M_NOT_FOUND`, 413 `M_TOO_LARGE` */
  async setAuthData(userId: string, version: string, algorithm: string, authData: unknown): Promise<void> {
    const text = objectText(authData, "'auth_data'", limits.keyBytes);
    const found = await this.#existing(userId, version);
    if (found.algorithm !== algorithm) throw MatrixError.invalidParam('The backup has another algorithm');
    await this.database.write((tx) => setAuthData(tx, userId, found.version, text), {
      name: 'key_backup_update',
      anyProcess: true,
    });
  }

  /**
   * Deletes a backup with its keys; one that was deleted before is fine, and loses what is left of its keys.
   * @throws MatrixError 404 `M_NOT_FOUND`
   */
  async delete(userId: string, version: string): Promise<void> {
    const number = versionNumber(version);
    const found = number === undefined ? undefined : await findVersion(this.database, userId, number);
    if (found === undefined) throw unknownVersion();
    // Before its sessions, which go some at a time: a backup that lacks most of them must not be the current one, whatever comes in between.
    if (!found.deleted)
      await this.database.write((tx) => deleteVersion(tx, userId, found.version), {
        name: 'key_backup_delete',
        anyProcess: true,
      });
    const deleteSome = (tx: Tx): Promise<number> => deleteSomeSessions(tx, userId, found.version, {}, sessionsDeleted);
    await this.#untilNoneIsLeft(deleteSome);
  }

  /**
   * Stores sessions where they are better than what is there. The etag changes if one was.
   * @throws MatrixError 403 `M_WRONG_ROOM_KEYS_VERSION` with `current_version`, 404 `M_NOT_FOUND`
   */
  async store(userId: string, version: string, sessions: readonly BackedUpSession[]): Promise<BackupState> {
    const number = versionNumber(version);
    return this.database.write(
      async (tx) => {
        const current = await this.#lockCurrent(tx, userId, number);
        let [written, added] = [0, 0];
        for (const [index, part] of batchesOf(sessions, sessionsStored).entries()) {
          if (index > 0) await ownTurn();
          const existing = await existingSessions(tx, userId, current, part);
          const before = new Map(existing.map((one) => [sessionKey(one), one]));
          const better = part.filter((offered) => {
            const stored = before.get(sessionKey(offered));
            return stored === undefined || isBetter(offered, stored);
          });
          if (better.length > 0) await writeSessions(tx, userId, current, better);
          written += better.length;
          added += better.filter((one) => !before.has(sessionKey(one))).length;
        }
        if (written > 0) await noteChange(tx, userId, current, added);
        return this.#state(tx, userId, current);
      },
      { name: 'key_backup_store', anyProcess: true },
    );
  }

  /** One session of a backup; `undefined` where it has none. @throws MatrixError 404 `M_NOT_FOUND` when there is no such backup */
  async session(
    userId: string,
    version: string,
    roomId: string,
    sessionId: string,
  ): Promise<BackedUpSession | undefined> {
    const found = await this.#existing(userId, version);
    return findSession(this.database, userId, found.version, roomId, sessionId);
  }

  /**
   * All sessions of a backup, or of a room in it, by room and id, some at a time, which are read when they are asked for; may be none.
   * @throws MatrixError 404 `M_NOT_FOUND` when there is no such backup
   */
  async pages(
    userId: string,
    version: string,
    roomId?: string,
  ): Promise<AsyncGenerator<readonly BackedUpSession[], void>> {
    return this.#pages(userId, (await this.#existing(userId, version)).version, roomId);
  }

  async *#pages(
    userId: string,
    version: number,
    roomId: string | undefined,
  ): AsyncGenerator<readonly BackedUpSession[], void> {
    for (let after: BackedUpSession | undefined; ;) {
      const page = await selectNextSessions(this.database, userId, version, { roomId, after }, sessionsRead);
      if (page.length > 0) yield page;
      if (page.length < sessionsRead) return;
      after = page.at(-1);
      await ownTurn();
    }
  }

  /** Deletes sessions; may be none. @throws MatrixError 404 `M_NOT_FOUND` when there is no such backup */
  async deleteSessions(userId: string, version: string, selector: SessionSelector): Promise<BackupState> {
    const { version: number } = await this.#existing(userId, version);
    if (!(await this.#deleteSessions(userId, number, selector))) throw unknownVersion();
    return this.#state(this.database, userId, number);
  }

  /** Deletes sessions, some in a transaction. @returns `false` where the backup is gone */
  async #deleteSessions(userId: string, version: number, selector: SessionSelector): Promise<boolean> {
    const deleteSome = async (tx: Tx): Promise<number | undefined> => {
      if (!(await lockVersion(tx, userId, version))) return undefined;
      const deleted = await deleteSomeSessions(tx, userId, version, selector, sessionsDeleted);
      if (deleted > 0) await noteChange(tx, userId, version, -deleted);
      return deleted;
    };
    return (await this.#untilNoneIsLeft(deleteSome)) !== undefined;
  }

  /** @param deleteSome deletes up to {@link sessionsDeleted}; `undefined` ends it */
  async #untilNoneIsLeft<Deleted extends number | undefined>(
    deleteSome: (tx: Tx) => Promise<Deleted>,
  ): Promise<Deleted> {
    for (;;) {
      const deleted = await this.database.write(deleteSome, { name: 'key_backup_delete_sessions', anyProcess: true });
      if (deleted === undefined || deleted < sessionsDeleted) return deleted;
    }
  }

  async #existing(userId: string, version: string): Promise<BackupVersion> {
    const number = versionNumber(version);
    const found = number === undefined ? undefined : await findVersion(this.database, userId, number);
    if (found === undefined || found.deleted) throw unknownVersion();
    return found;
  }

  async #lockCurrent(tx: Tx, userId: string, wanted: number | undefined): Promise<number> {
    const current = await currentVersion(tx, userId);
    if (current === undefined) throw unknownVersion();
    if (current.version !== wanted) {
      const named = wanted === undefined ? undefined : await findVersion(tx, userId, wanted);
      if (named === undefined || named.deleted) throw unknownVersion();
      throw MatrixError.wrongRoomKeysVersion(undefined, {
        current_version: String(current.version),
      });
    }
    if (!(await lockVersion(tx, userId, current.version))) throw unknownVersion();
    return current.version;
  }

  async #state(db: Db, userId: string, version: number): Promise<BackupState> {
    const found = await findVersion(db, userId, version);
    if (found === undefined) throw unknownVersion();
    return stateOf(found);
  }
}

/** The number of a version as clients write it; `undefined` for what no version is called. */
function versionNumber(version: string): number | undefined {
  return /^[1-9]\d{0,14}$/.test(version) ? Number(version) : undefined;
}
