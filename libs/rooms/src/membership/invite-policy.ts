import { Injectable } from '@nestjs/common';
import { RateLimiter } from '@rookery/http';
import type { RoomEvent } from '@rookery/events';
import { MatrixError } from '@rookery/matrix-types';
import { callbackContext, type GateVerdict, ModuleDispatcher, refusalError, toModuleEvent } from '@rookery/module-host';
import { Config, type Requester } from '@rookery/platform';
import { isLocalUser } from '@rookery/users';
import { InvitePermissions } from './invite-permissions.js';

/** Whether somebody may be invited: limits, settings, modules, and what the invited wish. */
@Injectable()
export class InvitePolicy {
  constructor(
    private readonly limiter: RateLimiter,
    private readonly modules: ModuleDispatcher,
    private readonly config: Config,
    private readonly permissions: InvitePermissions,
  ) {}

  /**
   * @param roomId `undefined` while the room is being created: that takes the inviter's limit for all at once
   * @returns whether to deliver it; `false`: it is to look sent, and to go nowhere
   * @throws MatrixError 403 `M_FORBIDDEN` or `M_INVITE_BLOCKED`, 429 `M_LIMIT_EXCEEDED`
   */
  async check(requester: Requester, target: string, roomId: string | undefined): Promise<boolean> {
    if (this.config.get('block_non_admin_invites') && !requester.isAdmin) {
      throw MatrixError.invitesDisabled();
    }
    if (roomId !== undefined) {
      await this.limiter.take('rc_invites.per_room', roomId, requester);
      await this.limiter.take('rc_invites.per_issuer', requester.userId, requester);
    }
    await this.limiter.take('rc_invites.per_user', target, requester);
    if (this.modules.has('userMayInvite')) {
      const context = callbackContext(requester, { duringRoomCreation: roomId === undefined });
      const verdict = await this.modules.gate('userMayInvite', context, requester.userId, target, roomId ?? '');
      if (!isDelivered(verdict)) return false;
    }
    await this.checkPermissions(requester.userId, target);
    return true;
  }

  /**
   * The same for an invite that another server sends. Ask it before the invite is signed and stored.
   * @param origin the server that sent it
   * @param event about a user of this server; its format and signatures were checked
   * @returns whether to store it; `false`: sign and answer it, and do nothing more
   * @throws MatrixError 403 `M_FORBIDDEN` or `M_INVITE_BLOCKED`, 429 `M_LIMIT_EXCEEDED`
   */
  async checkRemote(origin: string, event: RoomEvent): Promise<boolean> {
    const target = event.stateKey ?? '';
    if (this.config.get('block_non_admin_invites')) {
      throw MatrixError.invitesDisabled();
    }
    await this.limiter.take('rc_invites.per_room', event.roomId);
    await this.limiter.take('rc_invites.per_user', target);
    const context = callbackContext(undefined, { source: 'federation', origin });
    if (this.modules.has('shouldDropFederatedEvent')) {
      const verdict = await this.modules.gate('shouldDropFederatedEvent', context, toModuleEvent(event));
      if (!isDelivered(verdict)) return false;
    }
    if (this.modules.has('federatedUserMayInvite')) {
      const verdict = await this.modules.gate('federatedUserMayInvite', context, toModuleEvent(event));
      if (!isDelivered(verdict)) return false;
    }
    if (this.modules.has('userMayInvite')) {
      const verdict = await this.modules.gate('userMayInvite', context, event.sender, target, event.roomId);
      if (!isDelivered(verdict)) return false;
    }
    await this.checkPermissions(event.sender, target);
    return true;
  }

  /**
   * Honors what a local user has set about invites. What is to be ignored passes: it is not shown, and its sender not told.
   * @throws MatrixError 403 `M_INVITE_BLOCKED`
   */
  async checkPermissions(inviter: string, target: string): Promise<void> {
    if (!isLocalUser(target, this.config.serverName)) return;
    if (await this.permissions.blocks(target, inviter)) {
      throw MatrixError.inviteBlocked(`${target} does not take invites from ${inviter}`);
    }
  }
}

/** @throws MatrixError when a module refused openly */
function isDelivered(verdict: GateVerdict): boolean {
  if (verdict.allowed) return true;
  if (verdict.effect === 'refuse') throw refusalError(verdict);
  return false;
}
