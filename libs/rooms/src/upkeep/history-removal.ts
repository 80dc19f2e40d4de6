import { Injectable, type OnModuleInit } from '@nestjs/common';
import type { HistoryRemovalReason } from '@rookery/module-api';
import { assertAllowed, callbackContext, ModuleDispatcher } from '@rookery/module-host';
import type { Requester } from '@rookery/platform';
import { RoomHooks } from '../hooks.js';

/** Asks modules before what was said in a room is removed for good: some have to keep it. One that fails keeps it, too. */
@Injectable()
export class HistoryRemoval implements OnModuleInit {
  constructor(
    private readonly modules: ModuleDispatcher,
    private readonly hooks: RoomHooks,
  ) {}

  onModuleInit(): void {
    this.hooks.subscribe({
      mayRemoveHistory: async (roomId, reason, by) => {
        if (!this.modules.has('checkCanRemoveHistory')) return undefined;
        const context = callbackContext(by, { source: by ? 'admin' : 'server' });
        return this.modules.gate('checkCanRemoveHistory', context, roomId, reason);
      },
    });
  }
}

/** Whether a job of the server may remove what was said in a room. */
export async function mayRemoveHistory(
  hooks: RoomHooks,
  roomId: string,
  reason: HistoryRemovalReason,
): Promise<boolean> {
  for (const hook of hooks.all) if ((await hook.mayRemoveHistory?.(roomId, reason))?.allowed === false) return false;
  return true;
}

/** The rooms among these of which nothing may be removed. Each is asked for once. */
export async function keptRooms(
  hooks: RoomHooks,
  roomIds: Iterable<string>,
  reason: HistoryRemovalReason,
): Promise<ReadonlySet<string>> {
  const kept = new Set<string>();
  for (const roomId of new Set(roomIds)) if (!(await mayRemoveHistory(hooks, roomId, reason))) kept.add(roomId);
  return kept;
}

/**
 * Somebody wants it removed.
 * @param by `undefined` for the server itself
 * @throws MatrixError 403 `M_FORBIDDEN`, or what the module says
 */
export async function assertMayRemoveHistory(
  hooks: RoomHooks,
  roomId: string,
  reason: HistoryRemovalReason,
  by: Requester | undefined,
): Promise<void> {
  for (const hook of hooks.all) {
    const verdict = await hook.mayRemoveHistory?.(roomId, reason, by);
    if (verdict) assertAllowed(verdict);
  }
}
