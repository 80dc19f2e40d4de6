import { Controller, Param, Put } from '@nestjs/common';
import type { Infer } from '@rookery/http';
import type { JsonObject } from '@rookery/matrix-types';
import { FederationAccess, Origin, SignedContent } from '../inbound/federation-access.js';
import { InboundTransactions, transactionBody } from './inbound-transactions.js';

/** Fifty events and a hundred EDUs of the largest size, with room for how they are written. */
const bodyLimitBytes = 13_107_200;

/** Transactions of other servers. */
@Controller()
export class SendTransactionController {
  constructor(private readonly transactions: InboundTransactions) {}

  /** PUT /_matrix/federation/v1/send/{txnId} */
  @Put('/_matrix/federation/v1/send/:txnId')
  @FederationAccess({ unlimited: true, bodyLimitBytes })
  send(
    @Origin() origin: string,
    @Param('txnId') txnId: string,
    @SignedContent(transactionBody) content: Infer<typeof transactionBody>,
  ): Promise<JsonObject> {
    return this.transactions.receive(origin, txnId, content);
  }
}
