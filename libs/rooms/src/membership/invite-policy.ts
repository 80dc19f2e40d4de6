import { Injectable } from '@nestjs/common';
import { RateLimiter } from '@rookery/http';
import { MatrixError } from '@rookery/matrix-types';
import { assertAllowed, callbackContext, ModuleDispatcher } from '@rookery/module-host';
import { Config, type Requester } from '@rookery/platform';
import { AccountDataService, isLocalUser } from '@rookery/users';

/** Whether somebody may be invited: limits, settings, modules, and what the invited wish. */
@Injectable()
export class InvitePolicy {
  constructor(
    private readonly limiter: RateLimiter,
    private readonly modules: ModuleDispatcher,
    private readonly config: Config,
    private readonly accountData: AccountDataService,
  ) {}

  /**
   * @param roomId `undefined` while the room is being created
   * @throws MatrixError 403 `M_FORBIDDEN` or `M_INVITE_BLOCKED`, 429 `M_LIMIT_EXCEEDED`
   */
  async check(requester: Requester, target: string, roomId: string | undefined): Promise<void> {
    if (this.config.get('block_non_admin_invites') && !requester.isAdmin) {
      throw MatrixError.forbidden('Invites have been disabled on this server');
    }
    if (roomId !== undefined) {
      await this.limiter.take('rc_invites.per_room', roomId, requester);
      await this.limiter.take('rc_invites.per_issuer', requester.userId, requester);
    }
    await this.limiter.take('rc_invites.per_user', target, requester);
    if (this.modules.has('userMayInvite')) {
      const context = callbackContext(requester, { duringRoomCreation: roomId === undefined });
      assertAllowed(await this.modules.gate('userMayInvite', context, requester.userId, target, roomId ?? ''));
    }
    await this.checkWishes(requester.userId, target);
  }

  /**
   * Honors what a local user has set about invites.
   * @throws MatrixError 403 `M_INVITE_BLOCKED`
   */
  async checkWishes(inviter: string, target: string): Promise<void> {
    if (!isLocalUser(target, this.config.serverName)) return;
    const wishes = await this.accountData.find(target, undefined, 'm.invite_permission_config');
    if (wishes?.['default_action'] === 'block') {
      throw new MatrixError(403, 'M_INVITE_BLOCKED', `${target} does not take invites from ${inviter}`);
    }
  }
}
