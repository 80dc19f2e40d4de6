import { Injectable, Module, type OnModuleInit } from '@nestjs/common';
import { EphemeralHooks, EphemeralModule } from '@rookery/ephemeral';
import { BadgeUpdates, PushCounts, PushModule, PushSenderModule } from '@rookery/push';

/** What was read is no longer unread: receipts and counts live in libs that do not know each other. */
@Injectable()
class ReceiptsToPush implements OnModuleInit {
  constructor(
    private readonly ephemeral: EphemeralHooks,
    private readonly counts: PushCounts,
    private readonly badges: BadgeUpdates,
  ) {}

  onModuleInit(): void {
    this.ephemeral.subscribe({
      receiptsInTransaction: (tx, receipts) => this.counts.receiptsInTransaction(tx, receipts),
      receiptsSent: (receipts) => {
        for (const userId of new Set(receipts.map((receipt) => receipt.userId))) this.badges.changed(userId);
      },
    });
  }
}

@Module({ imports: [EphemeralModule, PushModule, PushSenderModule], providers: [ReceiptsToPush] })
export class ReceiptsToPushModule {}
