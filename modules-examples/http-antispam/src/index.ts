import {
  type CallbackContext,
  defineModule,
  DROP_SILENTLY,
  type EventVerdict,
  NOT_SPAM,
  type Refusal,
  type RegistrationBehavior,
  type SpamCheckerCallbacks,
} from '@rookery/module-api';
import { type Answer, readStatus, readVerdict } from './answers.js';
import { parseConfig } from './config.js';
import { ask, type Question, type Subject, subjects } from './questions.js';

const allowed: Answer = { verdict: 'allow', refusal: {} };

/** Asks a remote service whether something is spam. */
export default defineModule({
  name: 'http-antispam',
  parseConfig,
  register(api, { url, token, form, ask: asked, background, onFailure, timeoutMs }) {
    const failures = api.metrics.counter('failures_total', 'Questions that the service did not answer.');

    /** One request of the form that the service understands. */
    function requestFor(
      { subject, details, callback = details }: Question,
      context: CallbackContext,
    ): [string, object] {
      if (form === 'callbacks') return [`${url.replace(/\/+$/, '')}/${subjects[subject]}`, callback];
      const { ip, userAgent, source, origin } = context;
      const known = { ip, user_agent: userAgent, source, origin };
      return [url, { subject, server: api.serverName, ...details, context: known }];
    }

    async function send(question: Question, context: CallbackContext): Promise<Answer> {
      const { subject } = question;
      const headers: Record<string, string> = { 'content-type': 'application/json' };
      if (token !== undefined) headers['authorization'] = `Bearer ${token}`;
      const [address, body] = requestFor(question, context);
      try {
        const answer = await api.httpClient.request('POST', address, JSON.stringify(body), { headers, timeoutMs });
        const read = form === 'callbacks' ? readStatus(answer) : readVerdict(answer);
        if (read) return read;
        api.log.warn('The service gave an answer that means nothing', { subject, status: answer.status });
      } catch (error) {
        api.log.warn('The service did not answer', { subject, err: error });
      }
      failures.inc();
      return {
        verdict: onFailure(subject),
        refusal: { message: 'This cannot be checked right now; try again later' },
      };
    }

    async function answerTo(question: Question, context: CallbackContext): Promise<Answer> {
      if (!background.has(question.subject)) return send(question, context);
      api.runAsBackgroundProcess(question.subject, async () => void (await send(question, context)));
      return allowed;
    }

    const verdictOn = async (question: Question, context: CallbackContext): Promise<EventVerdict> => {
      const { verdict, refusal } = await answerTo(question, context);
      if (verdict === 'allow') return NOT_SPAM;
      return verdict === 'deny' ? refusal : DROP_SILENTLY;
    };
    /** Where nothing can be dropped, dropping is refusing. */
    const strictVerdictOn = async (
      question: Question,
      context: CallbackContext,
    ): Promise<typeof NOT_SPAM | Refusal> => {
      const { verdict, refusal } = await answerTo(question, context);
      return verdict === 'allow' ? NOT_SPAM : refusal;
    };
    const behaviorOf = ({ verdict }: Answer): RegistrationBehavior => {
      if (verdict === 'allow') return 'allow';
      return verdict === 'shadow_ban' ? 'shadowBan' : 'deny';
    };

    const callbacks: { readonly [S in Subject]: SpamCheckerCallbacks } = {
      event: { checkEventForSpam: (event, context) => verdictOn(ask.event(event), context) },
      remote_invite: { federatedUserMayInvite: (event, context) => verdictOn(ask.remoteInvite(event), context) },
      invite: {
        userMayInvite: (inviter, invitee, roomId, context) => verdictOn(ask.invite(inviter, invitee, roomId), context),
      },
      threepid_invite: {
        userMaySend3pidInvite: (inviter, medium, address, roomId, context) =>
          strictVerdictOn(ask.threepidInvite(inviter, medium, address, roomId), context),
      },
      join: {
        userMayJoinRoom: (userId, roomId, isInvited, context) =>
          strictVerdictOn(ask.join(userId, roomId, isInvited), context),
      },
      room: { userMayCreateRoom: (userId, _config, context) => strictVerdictOn(ask.room(userId), context) },
      alias: { userMayCreateRoomAlias: (userId, alias, context) => strictVerdictOn(ask.alias(userId, alias), context) },
      publish: {
        userMayPublishRoom: (userId, roomId, context) => strictVerdictOn(ask.publish(userId, roomId), context),
      },
      username: {
        checkUsernameForSpam: async (profile, requester, context) =>
          (await answerTo(ask.username(profile, requester), context)).verdict !== 'allow',
      },
      registration: {
        checkRegistrationForSpam: async (email, username, requests, provider, context) =>
          behaviorOf(await answerTo(ask.registration(username, email?.address, requests, provider), context)),
      },
      login: {
        checkLoginForSpam: (userId, deviceId, displayName, requests, provider, context) =>
          strictVerdictOn(ask.login(userId, deviceId, displayName, requests, provider), context),
      },
    };
    for (const subject of asked) api.registerSpamCheckerCallbacks(callbacks[subject]);
  },
});
