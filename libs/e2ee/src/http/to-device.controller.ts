import { Controller, Param, Put } from '@nestjs/common';
import { Access, type Infer, json, JsonBody, stable, Who } from '@rookery/http';
import type { JsonObject } from '@rookery/matrix-types';
import type { Requester } from '@rookery/platform';
import { ToDeviceSending } from '../to-device/to-device-sending.service.js';

const schema = json.object({
  messages: json.required(
    'The content of each message, by user and device; `*` for all devices of a user.',
    json.anyObject(),
  ),
});

/** Largest request, bytes. */
const bodyLimitBytes = 8_388_608;

@Controller()
export class ToDeviceController {
  constructor(private readonly sending: ToDeviceSending) {}

  /** PUT /_matrix/client/v3/sendToDevice/{eventType}/{txnId} */
  @Put(stable('/sendToDevice/:eventType/:txnId'))
  @Access({ auth: 'required', guests: true, bodyLimitBytes, anyProcess: true })
  async send(
    @Who() requester: Requester,
    @Param('eventType') type: string,
    @Param('txnId') txnId: string,
    @JsonBody(schema) body: Infer<typeof schema>,
  ): Promise<object> {
    await this.sending.sendByClient(requester, type, txnId, body['messages'] as JsonObject);
    return {};
  }
}
