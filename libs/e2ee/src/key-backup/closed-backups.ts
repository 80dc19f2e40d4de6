import { Injectable, type OnModuleInit } from '@nestjs/common';
import { Database } from '@rookery/database';
import { ownTurn } from '@rookery/platform';
import { UserHooks } from '@rookery/users';
import {
  closeBackupsOf,
  closedVersionsWithSessions,
  deleteClosedVersions,
  deleteSomeSessions,
} from './backup.query.js';

/** Sessions that are deleted in a transaction: a user may have kept keys for years. */
const sessionsDeleted = 500;

/** Deletes the key backups of users whose accounts are closed: nobody can read them from then on, and what they hold goes some at a time. */
@Injectable()
export class ClosedBackups implements OnModuleInit {
  constructor(
    private readonly database: Database,
    private readonly hooks: UserHooks,
  ) {}

  onModuleInit(): void {
    this.hooks.deactivated.subscribe({
      inTransaction: (tx, { userId }) => closeBackupsOf(tx, userId),
      // Also where the account is opened again: it has no claim to them any more.
      afterCommit: ({ userId }) => this.#delete(userId),
    });
  }

  /** What is left where that is interrupted goes when the deactivation goes on. */
  async #delete(userId: string): Promise<void> {
    for (const version of await closedVersionsWithSessions(this.database, userId)) {
      for (let deleted = sessionsDeleted; deleted === sessionsDeleted; await ownTurn())
        deleted = await this.database.write((tx) => deleteSomeSessions(tx, userId, version, {}, sessionsDeleted), {
          name: 'key_backup_delete_closed',
        });
    }
    await this.database.write((tx) => deleteClosedVersions(tx, userId), { name: 'key_backup_forget_closed' });
  }
}
