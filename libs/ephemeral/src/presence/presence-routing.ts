import { Injectable } from '@nestjs/common';
import { PRESENCE_ALL_USERS, type UserPresenceState } from '@rookery/module-api';
import { callbackContext, ModuleDispatcher } from '@rookery/module-host';
import { Logger } from '@rookery/platform';
import type { PresenceState } from '../model/presence-state.js';

/** Whose presence somebody gets beyond the usual. */
export type Interest = (userId: string) => boolean;

/** Who gets presence though they share no room: as modules say. Without such a module it costs a property check. */
@Injectable()
export class PresenceRouting {
  constructor(
    private readonly modules: ModuleDispatcher,
    private readonly logger: Logger,
  ) {}

  /** `undefined` where no module has a say. */
  async interestOf(userId: string): Promise<Interest | undefined> {
    if (!this.modules.has('getInterestedUsers')) return undefined;
    try {
      const users = await this.modules.getInterestedUsers(callbackContext(undefined), userId);
      return users === PRESENCE_ALL_USERS ? () => true : (other) => users.has(other);
    } catch (error) {
      // A module that fails must not take syncs with it.
      this.logger.error('Modules could not say whose presence a user gets', { user_id: userId, err: error });
      return undefined;
    }
  }

  /** Users beyond the usual, of this server or another, who are to hear of changes, each with those that are for them. */
  async recipientsOf(states: readonly PresenceState[]): Promise<ReadonlyMap<string, readonly PresenceState[]>> {
    if (!this.modules.has('getUsersForStates')) return nobody;
    try {
      const wanted = await this.modules.getUsersForStates(callbackContext(undefined), states.map(asModulesSee));
      const known = new Map(states.map((state) => [state.userId, state]));
      return new Map(
        [...wanted].map(([userId, given]) => [userId, [...given].flatMap((one) => known.get(one.userId) ?? [])]),
      );
    } catch (error) {
      this.logger.error('Modules could not say who hears of presence', { err: error });
      return nobody;
    }
  }
}

const nobody: ReadonlyMap<string, readonly PresenceState[]> = new Map();

function asModulesSee(state: PresenceState): UserPresenceState {
  return {
    userId: state.userId,
    state: state.state,
    lastActiveTs: state.lastActiveMs,
    lastFederationUpdateTs: state.lastFederationMs,
    lastUserSyncTs: state.lastSyncMs,
    statusMsg: state.statusMsg,
    currentlyActive: state.currentlyActive,
  };
}
