import { Codes, defineModule, DROP_SILENTLY, NOT_SPAM } from '@rookery/module-api';
import { type Action, comparable, parseConfig } from './config.js';

/** Decides who may invite whom: by user, by server, by whether they share a room. Administrators may always. */
export default defineModule({
  name: 'invite-policy',
  parseConfig,
  register(api, { rules, otherwise, message }) {
    /** The first rule that fits. Of an address nobody knows whose it is: no rule about users fits it, and it shares no room. */
    async function actionFor(inviter: string, invitee: string | undefined): Promise<Action> {
      const [by, whom] = [comparable(inviter), invitee === undefined ? undefined : comparable(invitee)];
      let shared = invitee === undefined ? false : undefined;
      for (const { from, to, sharedRoom, action } of rules) {
        if (from && !from.test(by)) continue;
        if (to && (whom === undefined || !to.test(whom))) continue;
        if (sharedRoom !== undefined) {
          shared ??= await api.usersShareRoom(inviter, invitee ?? '');
          if (shared !== sharedRoom) continue;
        }
        return action;
      }
      return otherwise;
    }
    const refusal = { errcode: Codes.FORBIDDEN, message };

    api.registerSpamCheckerCallbacks({
      async userMayInvite(inviter, invitee, _roomId, context) {
        const action = context.isAdmin ? 'allow' : await actionFor(inviter, invitee);
        if (action === 'allow') return NOT_SPAM;
        api.log.info('Invite refused', { inviter, invitee, action });
        return action === 'drop' ? DROP_SILENTLY : refusal;
      },
      async userMaySend3pidInvite(inviter, medium, _address, _roomId, context) {
        const action = context.isAdmin ? 'allow' : await actionFor(inviter, undefined);
        if (action === 'allow') return NOT_SPAM;
        // The invite is on its way through another server: there is nothing to drop.
        api.log.info('Invite refused', { inviter, medium, action });
        return refusal;
      },
    });
  },
});
