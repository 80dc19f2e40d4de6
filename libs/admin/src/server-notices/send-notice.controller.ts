import { Controller, Param, Post, Put } from '@nestjs/common';
import { type Infer, json, JsonBody, Who } from '@rookery/http';
import { MatrixError } from '@rookery/matrix-types';
import type { Requester } from '@rookery/platform';
import { createHash } from 'node:crypto';
import { admin, AdminAccess } from '../http/admin-endpoint.js';
import { AdminTargets } from '../http/admin-targets.js';
import { ServerNotices } from './server-notices.service.js';

const schema = json.object({
  user_id: json.required('Who gets the notice.', json.string()),
  content: json.required('The content of the event.', json.anyObject()),
  type: json.optional(
    'The type of the event; `m.room.message` unless given.',
    json.string({ minLength: 1, maxLength: 255 }),
  ),
  state_key: json.optional('Makes it a state event with this state key.', json.string({ maxLength: 255 })),
});

type NoticeBody = Infer<typeof schema>;

/** Notices that an administrator sends to users. */
@Controller()
@AdminAccess()
export class SendNoticeController {
  constructor(
    private readonly notices: ServerNotices,
    private readonly users: AdminTargets,
  ) {}

  /** POST /_synapse/admin/v1/send_server_notice */
  @Post(admin('v1', '/send_server_notice'))
  send(@JsonBody(schema) body: NoticeBody): Promise<object> {
    return this.#send(body, undefined);
  }

  /** PUT /_synapse/admin/v1/send_server_notice/{txnId} */
  @Put(admin('v1', '/send_server_notice/:txnId'))
  sendOnce(
    @Who() { userId }: Requester,
    @Param('txnId') txnId: string,
    @JsonBody(schema) body: NoticeBody,
  ): Promise<object> {
    // Administrators do not know of each other's ids, which may be as long as they like.
    return this.#send(body, createHash('sha256').update(`${userId} ${txnId}`).digest('base64url'));
  }

  async #send(body: NoticeBody, transactionId: string | undefined): Promise<object> {
    if (!this.notices.enabled) throw MatrixError.serverNoticesDisabled();
    const { userId } = await this.users.localAccount(body.user_id);
    const options = { type: body.type, stateKey: body.state_key, transactionId };
    return { event_id: await this.notices.send(userId, body.content, options) };
  }
}
