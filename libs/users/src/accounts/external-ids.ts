import { Injectable } from '@nestjs/common';
import { Database } from '@rookery/database';
import { MatrixError } from '@rookery/matrix-types';
import {
  type ExternalId,
  externalIdsOf,
  forgetExternalId,
  recordExternalId,
  replaceExternalIds,
  userOfExternalId,
} from '../store/external-id.query.js';

/** What users are called at single sign-on providers. An id belongs to one user. */
@Injectable()
export class ExternalIds {
  constructor(private readonly database: Database) {}

  /** The user whom a provider knows by an id. */
  userOf(authProvider: string, externalId: string): Promise<string | undefined> {
    return userOfExternalId(this.database, authProvider, externalId);
  }

  /** What a user is called at the providers, by provider. */
  of(userId: string): Promise<ExternalId[]> {
    return externalIdsOf(this.database, userId);
  }

  /** @returns whether the id was free, or the user's already */
  record(authProvider: string, externalId: string, userId: string): Promise<boolean> {
    return this.database.write((tx) => recordExternalId(tx, authProvider, externalId, userId), {
      name: 'user_external_id',
    });
  }

  /** @returns whether the id was the user's */
  forget(authProvider: string, externalId: string, userId: string): Promise<boolean> {
    return this.database.write((tx) => forgetExternalId(tx, authProvider, externalId, userId), {
      name: 'user_external_id',
    });
  }

  /** Makes these the only ids that a user has at providers. @throws MatrixError 409 `M_UNKNOWN` when one is another user's: nothing is changed */
  async replace(userId: string, ids: readonly ExternalId[]): Promise<void> {
    await this.database.write(
      async (tx) => {
        if (!(await replaceExternalIds(tx, userId, ids))) throw MatrixError.externalIdInUse();
      },
      { name: 'external_ids' },
    );
  }
}
