import { Injectable, Module, type OnModuleInit } from '@nestjs/common';
import { EphemeralHooks, EphemeralModule } from '@rookery/ephemeral';
import { PushCounts, PushModule } from '@rookery/push';

/** What was read is no longer unread: receipts and counts live in libs that do not know each other. */
@Injectable()
class ReceiptsToPush implements OnModuleInit {
  constructor(
    private readonly ephemeral: EphemeralHooks,
    private readonly counts: PushCounts,
  ) {}

  onModuleInit(): void {
    this.ephemeral.subscribe({
      receiptsInTransaction: (tx, receipts) => this.counts.receiptsInTransaction(tx, receipts),
    });
  }
}

@Module({ imports: [EphemeralModule, PushModule], providers: [ReceiptsToPush] })
export class ReceiptsToPushModule {}
