import { Injectable, type OnModuleInit } from '@nestjs/common';
import { defineBackgroundUpdate, type Tx } from '@rookery/database';
import { UserHooks } from '@rookery/users';
import { rebuildUpdates } from '../migrations/index.js';
import { deleteUsers, selectLocalUsers, selectMembers, upsertUsers } from './user-directory.query.js';

/** Keeps users of this server in the directory, as their profiles say, in the transactions that change them. Of others `UserDirectoryFollower` does. */
@Injectable()
export class UserDirectoryIndex implements OnModuleInit {
  constructor(private readonly hooks: UserHooks) {}

  onModuleInit(): void {
    const refresh = { inTransaction: (tx: Tx, { userId }: { readonly userId: string }) => refreshLocal(tx, userId) };
    this.hooks.registered.subscribe(refresh);
    this.hooks.profileChanged.subscribe(refresh);
    this.hooks.reactivated.subscribe(refresh);
    this.hooks.deactivated.subscribe({ inTransaction: (tx, { userId }) => deleteUsers(tx, [userId]) });
  }
}

async function refreshLocal(tx: Tx, userId: string): Promise<void> {
  const found = await selectLocalUsers(tx, { userIds: [userId] });
  if (found.length > 0) await upsertUsers(tx, found);
  else await deleteUsers(tx, [userId]);
}

/** Fills the directory anew: first with members of rooms, then, whose word counts more, with the users of this server. */
export const userDirectoryUpdate = defineBackgroundUpdate({
  name: rebuildUpdates.users,
  async run({ tx, progress, batchSize }) {
    const after = typeof progress['after'] === 'string' ? progress['after'] : '';
    const isLocal = progress['stage'] === 'local';
    const users = isLocal
      ? await selectLocalUsers(tx, { after, limit: batchSize })
      : await selectMembers(tx, after, batchSize);
    await upsertUsers(tx, users);
    const isLast = users.length < batchSize;
    return {
      items: users.length,
      progress: isLast
        ? { stage: 'local', after: '' }
        : { stage: isLocal ? 'local' : 'members', after: users.at(-1)?.userId ?? after },
      finished: isLast && isLocal,
    };
  },
});
